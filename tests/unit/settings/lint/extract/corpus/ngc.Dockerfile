# syntax=docker/dockerfile:1
ARG CUDA_VERSION=12.4.1
ARG BASE=nvcr.io/nvidia/pytorch
FROM ${BASE}:24.05-py3 AS build
ARG NCCL_VERSION=v2.21.5-1
ARG CUDA_VERSION
ENV DEBIAN_FRONTEND=noninteractive CUDA=$CUDA_VERSION

# it's long
RUN apt-get update && \
    # don't break here
    DEBIAN_FRONTEND=noninteractive apt-get install -y vim && \

    git clone -b ${NCCL_VERSION} https://x/nccl && \
    make -j src.build NVCC_GENCODE="-gencode=arch=compute_80"

FROM build
ENV LD_LIBRARY_PATH=/opt/nccl/lib:$LD_LIBRARY_PATH \
    # comment inside
    NCCL_SOCKET_IFNAME=^docker0,lo\
    OMPI_MCA_btl_tcp_if_exclude="lo, docker0"
ENV NCCL_DEBUG VERSION of the day
ENV OPAL_PREFIX=
env pmix_mca_gds=hash
RUN --mount=type=cache,target=/root/.cache \
    export MAX_JOBS=8 && TORCH_CUDA_ARCH_LIST="8.0 9.0" pip install flash-attn==2.5
RUN echo "export NCCL_NO=1" >> /etc/bash.bashrc
RUN ["bash", "-c", "export FLAGS=1 && make"]
RUN <<SETUP
export IN_DOCUMENT=1
SETUP
COPY <<CONF /etc/nccl.conf
NCCL_IB_TC=106
CONF
ONBUILD ENV NCCL_CHECKS_DISABLE=1
SHELL ["/bin/bash", "-c"]
LABEL NCCL_NO=1
CMD NCCL_LAUNCH_MODE=PARALLEL torchrun train.py

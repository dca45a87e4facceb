"""Ordinary environments and the shipped profiles give no finding at all."""

from __future__ import annotations

import time

import pytest
from lint_scenes import TORCH_CPU, cuda, findings, setting, told

from safelaunch.settings import profile
from safelaunch.settings.lint import lint
from safelaunch.settings.lint.context import LintContext, Setting
from safelaunch.settings.lint.installed import Installed
from safelaunch.settings.resolve import resolve_profiles

NGC = """
NVIDIA_PRODUCT_NAME=PyTorch NVIDIA_PYTORCH_VERSION=25.03 NVIDIA_BUILD_ID=148941828 NVIDIA_REQUIRE_CUDA=cuda>=9.0
NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS=
NVIDIA_PRODUCT_NAME=PyTorch PYTORCH_VERSION=2.7.0a0+7c8ec84dab PYTORCH_BUILD_VERSION=2.7.0a0+7c8ec84 PYTORCH_BUILD_NUMBER=0
PYTORCH_HOME=/opt/pytorch/pytorch PYTORCH_TRITON_VERSION=3.2.0+git0d4682f0b TORCH_CUDA_ARCH_LIST=7.5_8.0_8.6_9.0_10.0_12.0+PTX
TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 USE_EXPERIMENTAL_CUDNN_V8_API=1 TORCH_CUDNN_V8_API_ENABLED=1 CUDA_VERSION=12.8.1.012
CUDA_DRIVER_VERSION=570.124.06 CUDA_CACHE_DISABLE=1 CUDA_HOME=/usr/local/cuda CUDA_MODULE_LOADING=LAZY
CUDA_COMPONENT_LIST=cccl_crt_nvrtc CUBLAS_VERSION=12.8.4.1 CUDNN_VERSION=9.8.0.87 CUDNN_FRONTEND_VERSION=1.11.0
NCCL_VERSION=2.25.1 OMPI_MCA_coll_hcoll_enable=0 OPAL_PREFIX=/opt/hpcx/ompi UCC_CL_BASIC_TLS=^sharp
OPENUCX_VERSION=1.19.0 OPENMPI_VERSION=4.1.7 GDRCOPY_VERSION=2.4.1 NVSHMEM_VERSION=3.2.5 TRT_VERSION=10.9.0.34
LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/usr/local/nvidia/lib LIBRARY_PATH=/usr/local/cuda/lib64/stubs:
TORCHINDUCTOR_CACHE_DIR=/tmp/ti TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas JUPYTER_PORT=8888 TENSORBOARD_PORT=6006
COCOAPI_VERSION=2.0+nv0.8.1 NVM_DIR=/usr/local/nvm SHELL=/bin/bash PATH=/usr/local/nvm:/usr/bin PYTHONIOENCODING=utf-8
"""  # noqa: E501

SLURM = """
SLURM_JOB_ID=123 SLURM_NTASKS=2 SLURM_NODELIST=node[1-2] SLURM_JOB_GPUS=0,1 SLURM_PROCID=0 SLURM_LOCALID=0
CUDA_VISIBLE_DEVICES=0,1,2,3 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=0,1 ZE_AFFINITY_MASK=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID
OMP_NUM_THREADS=8 MKL_NUM_THREADS=8 MASTER_ADDR=node1 MASTER_PORT=29500 WORLD_SIZE=8 TMPDIR=/scratch/123 PMI_RANK=0
PMIX_SERVER_URI41=pmix HYDRA_BOOTSTRAP=slurm I_MPI_HYDRA_BOOTSTRAP=slurm KMP_AFFINITY=granularity=fine,compact,1,0
MODULEPATH=/opt/modules LOADEDMODULES=cuda/12.4:nccl/2.21 LMOD_VERSION=8.7 CUDA_PATH=/opt/cuda CUDA_ROOT=/opt/cuda
NCCL_HOME=/opt/nccl NCCL_ROOT=/opt/nccl EBROOTNCCL=/opt/nccl EBVERSIONNCCL=2.20.5 CUDNN_ROOT=/opt/cudnn
"""  # noqa: E501

CI = """
CI=true GITHUB_ACTIONS=true GITHUB_TOKEN=ghs_x RUNNER_OS=Linux HOME=/home/runner LANG=C.UTF-8 TERM=dumb
PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/hf HF_HUB_OFFLINE=1 TRANSFORMERS_CACHE=/hf TOKENIZERS_PARALLELISM=false
WANDB_API_KEY=x WANDB_MODE=offline TORCH_HOME=/torch TORCH_EXTENSIONS_DIR=/ext TORCH_COMPILE_DEBUG=0 TORCH_LOGS=+dynamo
ACCELERATE_USE_FSDP=true ACCELERATE_MIXED_PRECISION=bf16 DS_ACCELERATOR=cuda DS_SKIP_CUDA_CHECK=1 NVTE_FLASH_ATTN=1
PYTORCH_ENABLE_MPS_FALLBACK=1 PYTORCH_JIT=1 XLA_FLAGS=--x RAY_ADDRESS=auto KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=pod-0
"""  # noqa: E501

CLOUD = """
FI_PROVIDER=efa FI_EFA_USE_HUGE_PAGE=0 NCCL_TUNER_PLUGIN=libnccl-tuner.so NCCL_NET_PLUGIN=libnccl-net.so NCCL_DEBUG=WARN
NCCL_SOCKET_IFNAME=eth0 NCCL_NVLS_ENABLE=1 NCCL_TOPO_FILE=/opt/topo.xml NCCL_IB_PCI_RELAXED_ORDERING=1 UCX_TLS=rc
NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_GID_INDEX=3 NCCL_IB_TIMEOUT=22 NCCL_CROSS_NIC=0 NCCL_FASTRAK_NUM_FLOWS=2
NCCL_BUFFSIZE=8388608 NCCL_MIN_NCHANNELS= CUDA_DEVICE_MAX_CONNECTIONS=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=1
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""

HERE = {"CUDA": cuda(), "newest": cuda("2.13.0", "2.32.3"), "no CUDA": TORCH_CPU, "nothing": Installed()}


@pytest.mark.parametrize("installed", HERE.values(), ids=HERE)
@pytest.mark.parametrize("environment", [NGC, SLURM, CI, CLOUD], ids=["NGC", "Slurm", "CI", "cloud"])
def test_an_ordinary_environment_is_clean(environment: str, installed: Installed) -> None:
    shell = [setting(text, "the environment", "shell") for text in environment.split()]
    assert [found.summary for found in findings(*shell, installed=installed)] == []


def profiles() -> list[str]:
    return sorted(profile.available({"HOME": "/nonexistent"}))


def of_profile(name: str) -> tuple[Setting, ...]:
    env = resolve_profiles([name], {"HOME": "/nonexistent"}).table("env")
    return tuple(Setting(name, str(value.value), value.origin) for name, value in env.items())


@pytest.mark.parametrize("installed", HERE.values(), ids=HERE)
@pytest.mark.parametrize("debugging", [False, True])
@pytest.mark.parametrize("name", profiles())
def test_the_shipped_profiles_are_clean(name: str, debugging: bool, installed: Installed) -> None:
    found = lint(LintContext(of_profile(name), installed, debugging=debugging), {})
    assert [finding.summary for finding in found] == []


@pytest.mark.parametrize("name", profiles())
def test_a_shipped_profile_is_clean_where_torch_and_nccl_are_older(name: str) -> None:
    found = lint(LintContext(of_profile(name), cuda("2.6.0", "2.21.5")), {})
    assert [finding.summary for finding in found] == []


def test_nothing_set_nothing_said() -> None:
    assert told() == []


def test_a_lint_of_a_launch_takes_no_time_that_counts() -> None:
    shell = [setting(text, "the environment", "shell") for text in (NGC + SLURM + CI + CLOUD).split()]
    findings(*shell)  # the catalogue is read once
    before = time.process_time()
    findings(*shell)
    assert time.process_time() - before < 0.1

"""Advice that fits: the phase in which a failure came, the devices of the job, and what the log has already."""

from __future__ import annotations

import re

from safelaunch.diagnosis.logs.timeline import Candidate
from safelaunch.model.logs import LogFacts

NEAR = 30  # lines

_AMD = re.compile(r"\bHIP\b|\bhip[A-Z]\w+|\brocm|ROCm|\bRCCL\b|\bgfx\d{3,4}\b|rocblas|MIOpen|HSA_STATUS|amdgpu")
_ASCEND = re.compile(r"torch_npu|\bHCCL\b|\bHccl|\bNPU\b|\baclnn|\bACL\b|CANN")
_GAUDI = re.compile(r"habana|Habana|HABANA|synStatus|\bHCL\b|\bHPU\b|hpu:")
_TPU = re.compile(r"torch_xla|\bXLA\b|TPU:|libtpu|PjRt|xla::")
_XPU = re.compile(r"oneCCL|\bCCL_|\bXPU\b|level_zero|ZE_RESULT|xpu:")

# What stands in advice for NVIDIA's GPUs -> the same of others.
_ON_AMD = (
    ("look for Xid messages of that GPU in the kernel log", "look for messages of amdgpu in the kernel log (dmesg)"),
    ("CUDA_LAUNCH_BLOCKING=1 shows the line", "HIP_LAUNCH_BLOCKING=1 and AMD_LOG_LEVEL=3 show the call"),
    ("CUDA_LAUNCH_BLOCKING=1", "HIP_LAUNCH_BLOCKING=1"),
    ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    ("(Xid)", "(amdgpu)"),
    ("nvidia-smi -q -d ECC,ROW_REMAPPER", "rocm-smi --showrasinfo"),
    ("nvidia-smi", "rocm-smi"),
    ("compute-sanitizer", "rocgdb"),
    ("CUDA_ARCH_LIST", "ROCM_ARCH"),
)
_ON_ASCEND = (("nvidia-smi", "npu-smi info"), ("CUDA_LAUNCH_BLOCKING=1", "ASCEND_LAUNCH_BLOCKING=1"), ("GPU", "NPU"))
_ON_GAUDI = (("nvidia-smi", "hl-smi"), ("GPU", "HPU"))

_BRIDGE = re.compile(r"\bto \(?172\.17\.\d")  # docker0
_THREADS = re.compile(r"pthread_create\b[^\n]{0,40}\((?P<name>EINVAL|EAGAIN)\b")
_OF_THREADS = {
    "EINVAL": "a thread was to run on a CPU that this process may not use: compare the pinning of the library's "
    "threads (of oneCCL CCL_WORKER_AFFINITY, of OpenMP OMP_PLACES) with the job's CPUs (taskset -pc PID; the cgroup)",
    "EAGAIN": "no more threads may be started: see the limits of processes (ulimit -u; pids.max of the cgroup)",
}

# The calls in which a job is set up: the model, the optimizer's states, the buckets of DDP, the loading of weights.
_SETTING_UP = re.compile(
    r"dist\.Reducer\(|_ddp_init_helper|DistributedDataParallel\(|_configure_\w*optimizer|configure_optimizers|ZeroOptimizer\("
    r"|from_pretrained|load_state_dict|load_checkpoint|load_model|load_weights|init_device|\bprepare_model\b|deepspeed\.initialize"
    r"|_configure_distributed_model|build_model|get_model|model_provider|setup_model|create_weights|\bself\._apply\("
    r"|\.to\(device|\.to\(args\.device|\.cuda\(\)|FullyShardedDataParallel\(|fully_shard\(|_init_param_handle|init_fp32|initialize_optimizer"
    r"|make_layers|LLMEngine|determine_num_available_blocks|torch\.empty\(|single_grad_partition|partition_size"
)
_STEPPING = re.compile(
    r"\.backward\(|optimizer\.step\(|\bforward\(|train_step|training_step|_call_impl|loss\.|\bin step\b|execute_model"
)
_SERVER = re.compile(r"/(?:sglang|vllm|lmdeploy)/|text_generation_server|tensorrt_llm")
_ASKED = re.compile(r"[Tt]ried to allocate|out of memory")
_BUFFERS = re.compile(r"dist\.Reducer\(|_ddp_init_helper|DistributedDataParallel\(")
_OPTIMIZER = re.compile(
    r"_configure_\w*optimizer|ZeroOptimizer\(|single_grad_partition|partition_size|initialize_optimizer"
)
_KV = re.compile(
    r"KV cache is needed|larger than the (?:available KV cache memory|maximum number of tokens)|available KV cache"
)


def fitting(facts: LogFacts, one: Candidate, remedy: str) -> str:
    """Advice for a failure, as it fits.

    Args:
        facts: of the log.
        one: the failure.
        remedy: what is advised of its kind.
    """
    text = "\n".join((one.at.text, one.what, one.traceback, *_beside(facts, one)))
    return _of_platform(text, _of_phase(facts, text, one, remedy))


def _beside(facts: LogFacts, one: Candidate) -> list[str]:
    """The tracebacks that stand beside a message which is all that is left of one."""
    if not one.message_only:
        return []
    return [
        other.traceback
        for other in facts.raised
        if other.at.file == one.at.file and abs(other.at.line - one.at.line) <= NEAR and other.rank in (None, one.rank)
    ]


def _of_phase(facts: LogFacts, text: str, one: Candidate, remedy: str) -> str:
    if one.code == "SL420":
        return _of_memory(text, remedy)
    if special := _of_system(text, one):
        return special
    if "did not receive grad" in text and "TORCH_DISTRIBUTED_DEBUG" in remedy:
        return "use the parameters that the message names in every step, or set find_unused_parameters=True"
    if remedy.startswith("NCCL_DEBUG=WARN") and _has_warnings(facts):
        return "read NCCL's warnings in this log, on all ranks: the first of them says what failed"
    if remedy.startswith("NCCL_DEBUG=WARN") and "Last error:" in text:
        return "the last error in the message is NCCL's reason; NCCL_DEBUG=INFO shows what it did before, on all ranks"
    return remedy


def _of_system(text: str, one: Candidate) -> str:
    """What fits the sockets, networks and threads of a node; empty where it is of none of these."""
    if one.code == "SL424" and "gloo/transport" in text:
        return (
            "Gloo takes ports of its own, not the store's: see how many sockets and which port range this node has "
            "(ss -s; sysctl net.ipv4.ip_local_port_range), and that GLOO_SOCKET_IFNAME names an interface that is up"
        )
    if one.code == "SL602" and one.host and not one.host.startswith("172.17.") and _BRIDGE.search(one.at.text):
        return (
            "172.17.x.x is the bridge of Docker on one node, which no other node reaches: start the containers with "
            "--network=host, or give the address of a network that the nodes share (MASTER_ADDR; of Ray "
            "--node-ip-address)"
        )
    if match := _THREADS.search(text):
        return _OF_THREADS[match["name"]]
    return ""


def _has_warnings(facts: LogFacts) -> bool:
    return any("NCCL WARN" in s.at.text for s in facts.sightings)


def _of_memory(text: str, remedy: str) -> str:
    """Of a full GPU: what is cured by smaller batches, and what is not."""
    if _KV.search(text):
        return (
            "the cache of keys and values does not fit: a shorter context (--max-model-len), a larger share of the "
            "GPU (--gpu-memory-utilization), or more GPUs (tensor or pipeline parallelism)"
        )
    if not _ASKED.search(text):
        return remedy
    if _SERVER.search(text):
        return (
            "leave more of the GPU free: a smaller share for weights and cache (--mem-fraction-static, "
            "--gpu-memory-utilization), fewer requests at once, or more GPUs (tensor parallelism)"
        )
    setting_up = list(_SETTING_UP.finditer(text))
    stepping = list(_STEPPING.finditer(text))
    if not setting_up or (stepping and stepping[-1].start() > setting_up[-1].start()):
        return remedy
    where = "the model was set up"
    if _BUFFERS.search(text):
        where = "DDP made its buckets, which hold all gradients once more"
    elif _OPTIMIZER.search(text):
        where = "the optimizer's states were set up"
    return (
        f"it came while {where}, so a smaller batch does not help: shard parameters, gradients and optimizer states "
        "(FSDP, ZeRO stage 3, tensor parallelism), offload them, train fewer parameters (LoRA), or use more GPUs"
    )


def _of_platform(text: str, remedy: str) -> str:
    for pattern, words in ((_AMD, _ON_AMD), (_ASCEND, _ON_ASCEND), (_GAUDI, _ON_GAUDI)):
        if pattern.search(text):
            for ours, theirs in words:
                remedy = remedy.replace(ours, theirs)
            return remedy
    return remedy


def of_platform(text: str, code: str) -> str:
    """Where the runtime of other devices than NVIDIA's tells why a call failed; empty where that is not known.

    Args:
        text: of the failure.
        code: of the verdict, which has no advice of its own.
    """
    if code != "SL401":
        return ""
    if _GAUDI.search(text):
        return "the logs below $HABANA_LOGS say why (set LOG_LEVEL_ALL=4 before the job); hl-smi shows the cards' state"
    if _ASCEND.search(text):
        return "the plog files of the CANN runtime (ascend/log) say why: read those of this device, around this time"
    if _TPU.search(text):
        return (
            "the logs of libtpu (/tmp/tpu_logs) and PT_XLA_DEBUG=1 say more; compare with the other hosts of the slice"
        )
    if _XPU.search(text):
        return "CCL_LOG_LEVEL=info and ZE_DEBUG=1 say more of the call that failed"
    return ""

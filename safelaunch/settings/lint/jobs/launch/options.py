"""The options that launchers take, and which of them take a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.settings.torchrun import OPTIONS as _OF_TORCHRUN


class Options(NamedTuple):
    """The options of one launcher, as they are written in full: those with a value, and those without.

    `like` are names that people write who know another launcher, each with what is meant; `versions` says what the list
    was read from.
    """

    values: frozenset[str]
    flags: frozenset[str]
    like: Mapping[str, str]
    versions: str

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.values | self.flags

    def full(self, head: str) -> str:
        """The whole name of an option that may be shortened, as argparse allows; itself where none or several begin
        so."""
        if head in self.names:
            return head
        begin = {name for name in self.names if name.startswith(head)} if head.startswith("--") else set()
        same = {name.replace("_", "-") for name in begin}
        return same.pop() if len(same) == 1 else head


def _both(names: set[str]) -> frozenset[str]:
    """Names with dashes, as they are and with underscores."""
    return frozenset(names | {f"--{name[2:].replace('-', '_')}" for name in names if name.startswith("--")})


_NAMES = {name for option in _OF_TORCHRUN for name in option.names}
_FLAGS = {name for option in _OF_TORCHRUN if option.takes == "flag" for name in option.names}
TORCHRUN = Options(
    _both(_NAMES - _FLAGS),
    _both(_FLAGS | {"-h", "--help"}),
    {},
    "torch 2.15",
)


def _plain(text: str) -> set[str]:
    """The names of a list, as they are."""
    return {f"--{name}" for name in text.split()}


def _dashed(text: str, heads: Mapping[str, str] | None = None) -> set[str]:
    """The names of a list: `fsdp: version offload_params` are --fsdp-version and --fsdp-offload-params."""
    found = {f"--{name.replace('_', '-')}" for name in text.split()}
    for head, names in (heads or {}).items():
        found |= {f"--{head}-{name.replace('_', '-')}" for name in names.split()}
    return found


# Source: accelerate/commands/launch.py of 0.12 to 1.15; with - and _ alike from 0.20 on.
ACCELERATE = Options(
    _both(
        _dashed(
            """
            config_file mixed_precision num_processes num_machines num_cpu_threads_per_process gpu_ids machine_rank
            main_process_ip main_process_port main_training_function tee log_dir role rdzv_backend rdzv_conf
            max_restarts monitor_interval vm env dynamo_backend dynamo_mode zero_stage zero3_init_flag
            zero3_save_16bit_model offload_optimizer_device offload_param_device offload_optimizer_nvme_path
            offload_param_nvme_path gradient_accumulation_steps gradient_clipping aws_access_key_id
            aws_secret_access_key mpirun_ccl mpirun_hostfile min_num_params offload_params sharding_strategy
            transformer_layer_cls_to_wrap
            """,
            {
                "deepspeed": "config_file exclusion_filter hostfile inclusion_filter moe_layer_cls_names "
                "multinode_launcher",
                "fsdp": "activation_checkpointing activation_checkpointing_offload auto_wrap_policy backward_prefetch "
                "backward_prefetch_policy cpu_ram_efficient_loading forward_prefetch min_num_params offload_params "
                "reshard_after_forward sharding_strategy state_dict_type sync_module_states "
                "transformer_layer_cls_to_wrap use_orig_params version",
                "fp8": "amax_compute_algo amax_history_len backend enable_fsdp_float8_all_gather format interval "
                "margin opt_level pad_inner_dim",
                "megatron-lm": "attention_backend attention_dropout attention_softmax_in_fp32 "
                "calculate_per_token_loss context_parallel_size decoder_last_pipeline_num_layers eod_mask_loss "
                "expert_model_parallel_size expert_tensor_parallel_size gradient_clipping hidden_dropout no_load_optim "
                "no_save_optim num_micro_batches optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d pp_degree "
                "recompute_activations recompute_granularity recompute_method recompute_num_layers "
                "sequence_parallelism tp_degree use_custom_fsdp use_distributed_optimizer "
                "use_precision_aware_optimizer use_rotary_position_embeddings",
                "parallelism-config": "cp_backend cp_comm_strategy cp_size dp_replicate_size dp_shard_size "
                "sp_attn_implementation sp_backend sp_seq_length sp_seq_length_is_variable sp_size tp_size",
            },
        )
        | {"-t"}
    ),
    _both(
        _dashed(
            """
            help cpu debug downcast_bf16 dynamo_use_dynamic dynamo_use_fullgraph dynamo_use_regional_compilation
            enable_cpu_affinity fp16 fp8_use_autocast_during_eval ipex module multi_gpu no_python no_tpu_cluster quiet
            same_network tpu tpu_cluster tpu_use_sudo use_deepspeed use_fsdp use_megatron_lm use_mps_device
            use_parallelism_config use_xpu
            """
        )
        | {"-h", "-m", "-q"}
    ),
    {
        "--nnodes": "--num_machines",
        "--num-nodes": "--num_machines",
        "--nproc-per-node": "--num_processes, which counts the processes of all machines",
        "--num-gpus": "--num_processes, which counts the processes of all machines",
        "--node-rank": "--machine_rank",
        "--master-addr": "--main_process_ip",
        "--master-port": "--main_process_port",
        "--rdzv-endpoint": "--main_process_ip and --main_process_port",
    },
    "accelerate 0.12 to 1.15",
)

# Source: deepspeed/launcher/runner.py of 0.9 to 0.19.
DEEPSPEED = Options(
    frozenset(
        _plain(
            """
            autotuning bind_core_list enable_each_rank_log exclude hostfile include launcher launcher_args log_level
            master_addr master_port max_elastic_nodes min_elastic_nodes node_rank num_accelerators num_gpus num_nodes
            ssh_port venv_script
            """
        )
        | {"-H", "-i", "-e"}
    ),
    frozenset(
        _plain(
            """
            help bind_cores_to_rank elastic_training force_multi module no_local_rank no_python no_ssh no_ssh_check
            quiet save_pid
            """
        )
        | {"-h", "-q"}
    ),
    {
        "--nnodes": "--num_nodes",
        "--nproc-per-node": "--num_gpus",
        "--num-machines": "--num_nodes",
        "--num-processes": "--num_gpus",
    },
    "DeepSpeed 0.9 to 0.19",
)

OF: Mapping[str, Options] = {
    "torchrun": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "accelerate": ACCELERATE,
    "deepspeed": DEEPSPEED,
}

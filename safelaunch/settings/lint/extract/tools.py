"""Which options of which programs set variables for the programs that these start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

# How an option takes its variables.
#   pair    X=1 in the next word or after =; X alone takes the variable over and sets nothing
#   commas, colons, semicolons    A=1,B=2
#   csv     A=1,B=2, but a lone X=1,2 is one variable (pflag's StringToString)
#   two     X 1, in two words
#   many    A=1 B=2, all the words that follow
#   mca     a key and a value of Open MPI
#   script  a text for the shell
#   json    a runtime environment of Ray
Style = Literal["pair", "commas", "csv", "colons", "semicolons", "two", "many", "mca", "script", "json"]

_CONTAINER: dict[str, Style] = {"-e": "pair", "--env": "pair"}
_MPI: dict[str, Style] = {
    "-x": "pair", "--x": "pair", "-env": "two", "-genv": "two", "--env": "pair", "--genv": "pair",
    "-mca": "mca", "--mca": "mca", "-gmca": "mca", "--gmca": "mca",
}  # fmt: skip
_SLURM: dict[str, Style] = {"--export": "commas", "--wrap": "script"}

TOOLS: Mapping[str, Mapping[str, Style]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "nvidia-docker", "sarus", "cog"), _CONTAINER),
    **dict.fromkeys(("enroot", "shifter", "dstack", "lep", "runpodctl", "modal"), _CONTAINER),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "mpiexec.mpich"), _MPI),
    **dict.fromkeys(("srun", "sbatch", "salloc", "sattach"), _SLURM),
    **{name: {"--env": "csv"} for name in ("apptainer", "singularity")},
    **{name: {"-v": "commas"} for name in ("qsub", "qrsh", "qlogin", "qalter")},
    **{name: {"--env": "pair"} for name in ("kubectl", "oc", "sky", "gantry", "beaker")},
    "bsub": {"-env": "commas"},
    "oarsub": {"-e": "pair"},
    "pjsub": {"-x": "commas"},
    "cobalt": {"--env": "colons"},
    "flux": {"--env": "pair"},
    "aprun": {"-e": "pair"},
    "jsrun": {"-E": "pair", "--env": "pair"},
    "ch-run": {"--set-env": "pair"},
    "ray": {"--runtime-env-json": "json"},
    "torchx": {"--env": "commas"},
    "runai": {"-e": "pair", "--env": "pair", "--environment": "pair", "--environment-variable": "pair"},
    "xpk": {"--env": "pair", "--command": "script"},
    "nsys": {"-e": "commas", "--env-var": "commas"},
    "systemd-run": {"-E": "pair", "--setenv": "pair"},
    "bwrap": {"--setenv": "two"},
    "tmux": {"-e": "pair"},
    "gcloud": {
        "--set-env-vars": "commas", "--update-env-vars": "commas", "--container-env": "commas", "--env-vars": "commas",
        "--command": "script",
    },
    "az": {"--env-vars": "many", "--environment-variables": "many", "--set-env-vars": "many"},
}  # fmt: skip

# Launchers in Python that pass variables on have this option; `--env CartPole` of others names no variable.
PYTHON = re.compile(r"(?:python|pypy)[0-9.]*|[\w.-]+\.py")

# What any other program may be assumed to mean; and one whose name is not known: $LAUNCHER run -e X=1
ANY: Mapping[str, Style] = {"--env": "pair"}
UNKNOWN: Mapping[str, Style] = {**_CONTAINER, "-x": "pair", "-genv": "two"}

# These take NAME=VALUE words before the command that they start.
TAKE_WORDS = frozenset({"env", "sudo", "doas", "mpirun_rsh"})
# Of these options the next word is a value.
WORD_OPTIONS = re.compile(r"-[uCSghpURD]|--unset|--chdir|--user|--group|-np|-hostfile")

SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "csh", "tcsh", "ash", "su"})
SHELL: Mapping[str, Style] = {"-c": "script", "-lc": "script"}
COMMAND_OPTION = re.compile(r"-[A-Za-z]*c")

# A shell on another host reads what follows the host. The letters are options that take a value.
REMOTE: Mapping[str, tuple[str, int]] = {
    "ssh": ("bcDEeFIiJLlmOopQRSWw", 1),
    "pdsh": ("wxgGtuflRMF", 0),
    "clush": ("wxgXftup", 0),
    "pssh": ("hHlptoeO", 0),
    "parallel-ssh": ("hHlptoeO", 0),
}

# What follows these is theirs: `make X=1`, `python train.py --env X=1`, `pip install a==1`.
OWN_WORDS = re.compile(
    r"(?:python|pypy|pip)[0-9.]*|[\w.-]+\.py|torchrun|accelerate|deepspeed|safelaunch|make|cmake|ninja|git|[gmn]?awk|dd|curl|wget"
    r"|sed|[ef]?grep|find|jq|yq|node|npm|java|apt|apt-get|yum|dnf|gcc|g\+\+|nvcc|rsync|tar|cp|ln|mv|rm|aws|helm"
)

# They start no program, so a variable before them reaches none: IFS=, read -r a b
BUILTINS = re.compile(
    r"read|mapfile|readarray|echo|printf|:|\[|\[\[|test|cd|pushd|popd|export|declare|typeset|local|readonly|set|shift"
    r"|unset|trap|return|exit|true|false|let|getopts|wait|kill|umask|ulimit|alias|unalias|type|hash|shopt|bind|pwd|jobs"
    r"|setenv|unsetenv|break|continue|dirs|enable|fg|bg|for|foreach|select|integer|float|setopt|unsetopt|autoload"
)

"""What to write into a job so that its scheduler acts on our exit codes: each policy is text, and where it is from."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.codes import EXIT_INFRASTRUCTURE, EXIT_PROFILE, EXIT_REFUSED, EXIT_SCRIPT_FAILED, EXIT_USAGE

RETRIED = (EXIT_REFUSED, EXIT_INFRASTRUCTURE)
FINAL = (EXIT_SCRIPT_FAILED, EXIT_USAGE, EXIT_PROFILE)
RETRIED_BY_SHELL = "|".join(map(str, RETRIED))
RETRIED_LIST, FINAL_LIST = (f"[{', '.join(map(str, codes))}]" for codes in (RETRIED, FINAL))


@dataclass(frozen=True)
class Policy:
    """What one scheduler is told.

    Args:
        about: a sentence.
        source: where its rules are written.
        snippet: what to write, with comments.
    """

    about: str
    source: str
    snippet: str


POLICIES: dict[str, Policy] = {
    "slurm": Policy(
        "Slurm never requeues for an exit code: the job asks for it itself.",
        "sbatch(1), --requeue and --open-mode; scontrol(1), requeue",
        """\
#SBATCH --requeue            # without it `scontrol requeue` is refused
#SBATCH --open-mode=append   # a requeued job would truncate its log

# The short way: safelaunch requeues the job itself, and leaves the bad node out of the next attempt.
srun --ntasks-per-node=1 safelaunch --requeue train.py

# The same without it, where compute nodes cannot reach the controller; every node may run the next attempt:
#   srun --ntasks-per-node=1 safelaunch train.py; code=$?      # no `| tee` here: it would hide the exit code
#   case $code in {retried_by_shell}) [ "${{SLURM_RESTART_COUNT:-0}}" -lt 3 ] && scontrol requeue "$SLURM_JOB_ID";; esac
#   exit $code
""",
    ),
    "k8s": Policy(
        "A Job counts every failed pod; rules on exit codes come before the counting.",
        'kubernetes.io, Jobs, "Pod failure policy": the first rule that matches counts; restartPolicy must be Never',
        """\
# In the spec of a Job.
backoffLimit: 3
podFailurePolicy:
  rules:
    - action: FailJob            # the code, the command or the profile is wrong: another pod fails as well
      onExitCodes:
        containerName: trainer   # the name of your container
        operator: In
        values: {final_list}
    - action: Ignore             # an eviction or a preemption is no failure
      onPodConditions:
        - type: DisruptionTarget
    - action: Count              # the node or the network: another pod, {retried_words}
      onExitCodes:
        containerName: trainer
        operator: In
        values: {retried_list}
template:
  spec:
    restartPolicy: Never
""",
    ),
    "jobset": Policy(
        "The Job inside fails for good on some exit codes; the JobSet restarts all of its Jobs on the others.",
        'jobset.sigs.k8s.io, "Failure policy"; kubernetes.io, Jobs, "Pod failure policy"',
        """\
# In the spec of a JobSet.
failurePolicy:
  maxRestarts: 3
  rules:
    - name: the-program-is-wrong
      action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy]
    # Any other failure, as {retried_words}, restarts the JobSet and counts: that needs no rule.
replicatedJobs:
  - name: node
    template:
      spec:
        backoffLimit: 0          # the first pod that fails ends the Job, and the JobSet decides
        podFailurePolicy:
          rules:
            - action: FailJob
              onExitCodes:
                containerName: trainer
                operator: In
                values: {final_list}
        template:
          spec:
            restartPolicy: Never
""",
    ),
    "pytorchjob": Policy(
        "restartPolicy: ExitCode retries codes from 128 on and no other, so safelaunch must end with one of those.",
        "kubeflow/training-operator, pkg/util/train: IsRetryableExitCode; the API's RestartPolicyExitCode",
        """\
# In the profile of the launch: {retried_words} become 138 (SIGUSR1, which Kubeflow leaves to users for "retry").
#   [launch]
#   exit_codes = "signal"
# In the spec of a PyTorchJob, for Master and Worker alike:
runPolicy:
  backoffLimit: 3
pytorchReplicaSpecs:
  Master:
    restartPolicy: ExitCode
  Worker:
    restartPolicy: ExitCode
""",
    ),
    "skypilot": Policy(
        "A managed job recovers on lost nodes by itself, and on the exit codes that it is told.",
        'docs.skypilot.co, Managed Jobs, "job_recovery"',
        """\
# In the YAML of a managed job (sky jobs launch).
resources:
  job_recovery:
    recover_on_exit_codes: {retried_list}   # these do not count against the next line
    max_restarts_on_errors: 0         # {final_words}: the job is over
""",
    ),
    "beaker": Policy(
        "Beaker retries a task whatever its exit code was, so a failure for good leaves a mark that ends the next job.",
        "beaker-docs.apps.allenai.org, Experiments: `retry.allowedTaskRetries` starts a new job for each failed task",
        """\
# In the spec of an experiment. Preempted jobs are started anew without it.
retry:
  allowedTaskRetries: 3
tasks:
  - name: train
    command: [sh, -c]
    arguments:
      - |
        failed=/weka/OURS/$BEAKER_WORKLOAD_ID.failed   # on a file system that all nodes mount
        [ ! -e "$failed" ] || exit 1
        trap 'kill -TERM "$pid"' TERM                  # sh is the first process, and passes nothing on by itself
        safelaunch train.py & pid=$!
        wait "$pid"; code=$?
        if kill -0 "$pid" 2>/dev/null; then wait "$pid"; code=$?; fi   # a signal ends the first wait only
        case $code in 0|{retried_by_shell}|1[34]*) ;; *) touch "$failed";; esac
        exit $code
""",
    ),
}


def text(name: str) -> str:
    """What to write, below a comment that says what it does and where that is written.

    Args:
        name: one of `POLICIES`.
    """
    policy = POLICIES[name]
    retried, final = (" and ".join(map(str, codes)) for codes in (RETRIED, FINAL))
    snippet = policy.snippet.format(
        retried_by_shell=RETRIED_BY_SHELL,
        retried_list=RETRIED_LIST,
        retried_words=retried,
        final_list=FINAL_LIST,
        final_words=final.replace(" and ", ", ", len(FINAL) - 2),
    )
    head = f"# {policy.about}\n# {retried} are tried again, {', '.join(map(str, FINAL))} are not.\n"
    return f"{head}# Source: {policy.source}\n\n{snippet}"

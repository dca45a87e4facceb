"""What counts as exported in a shell script, case by case."""

from __future__ import annotations

import pytest

from safelaunch.settings.lint.extract import extract


def found(script: str) -> str:
    return " ".join(
        f"{setting.name}={'?' if setting.value is None else setting.value}" for setting in extract("job.sh", script)
    )


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ("export A=1 B=2", "A=1 B=2"),
        ("A=1\nexport A", "A=1"),
        ("export A\nA=1", "A=1"),
        ("export A=1\nA=2", "A=1 A=2"),
        ("declare -x A=1; typeset -x B=2; declare -gx C=3", "A=1 B=2 C=3"),
        ("readonly A=1; export A", "A=1"),
        ("set -a; A=1; set +a; B=2", "A=1"),
        ("set -euo pipefail -o allexport; A=1", "A=1"),
        ("A=1 B=2 python x.py", "A=1 B=2"),
        ("A=1 \\\n  B=2 \\\n  python x.py", "A=1 B=2"),
        ("if ! A=1 python x.py; then :; fi", "A=1"),
        ("time A=1 python x.py", "A=1"),
        ("A=1 python x.py | B=2 tee log && C=3 python y.py", "A=1 B=2 C=3"),
        ("export A=1 && B=$A python x.py", "A=1 B=1"),
        ("f() { export A=1; }", "A=1"),
        ("function f {\n  export A=1\n}", "A=1"),
        ("while read -r x; do export A=$x; done < f", "A=?"),
        ("for A in 1 2; do export A; done", "A=?"),
        ("for A in 1; do export A; done", "A=1"),
        ("if x; then export A=1; elif y; then export A=2; else export A=3; fi", "A=1 A=2 A=3"),
        ("if x; then A=1; else A=2; fi; export A", "A=1 A=2"),
        ("A=1; A=2; export A", "A=2"),
        ("case $x in (a|b) export A=1;; c) export A=2;; esac", "A=1 A=2"),
        ("[ -z $A ] && export A=1", "A=1"),
        ("[[ $x =~ ^(a|b)$ && $y ]] || export A=1", "A=1"),
        ("(( n > 2 )) && export A=1", "A=1"),
        ("export A=$(x 'a)b' $(y)) B=1", "A=? B=1"),
        ("export A=`x` B=1", "A=? B=1"),
        ("A=$(B=1 python x.py)", "B=1"),
        ("export A=$((2 * 3)) B=$((2 * N))", "A=6 B=?"),
        ("export A=${B:-x}", "A=x"),
        ("export A=${B:-${C:-y}}", "A=y"),
        ("B=1; export A=${B:-x}", "A=1"),
        ("if x; then B=1; fi; export A=${B:-x}", "A=?"),
        ("if x; then B=1; fi; export A=$B", "A=1"),
        (': "${A:=1}"; export A', "A=1"),
        ("export A=$B/c", "A=?"),
        ("export PATH=/x:$PATH", "PATH=?"),
        ("export A=1; export A+=2", "A=1 A=12"),
        ("export A='$x' B=\"a $$ b\" C=$'a\\nb'", "A=$x B=? C=a\nb"),
        ("export A=~/x", "A=~/x"),
        ("export A=a#b # export B=1", "A=a#b"),
        ("export A={{ a }} B=1", "A=? B=1"),
        ("export A=<your value> B=1", "A=? B=1"),
        ("export A=1; unset A; python x.py", ""),
        ("export A=1; python x.py; unset A", "A=1"),
        ("eval 'export A=1'", "A=1"),
        ("bash -c 'export A=1; B=2 x'", "A=1 B=2"),
        ('X="A=1 python x.py"; eval "$X"', "A=1"),
        ("env -i -u B A=1 python x.py C=1", "A=1"),
        ("sudo -E -u me A=1 python x.py", "A=1"),
        ("nohup nice -n 5 env A=1 python x.py &", "A=1"),
        ("timeout -k 5 60 srun --export=ALL,A=1,B python x.py", "A=1"),
        ("srun --export ALL,A=1 x", "A=1"),
        ("sbatch --wrap='A=1 python x.py'", "A=1"),
        ("mpirun -x A=1 -x B x", "A=1"),
        ("mpiexec -genv A 1 -env B=2 x", "A=1 B=2"),
        ("docker run -e A=1 --env B=2 --env=C=3 -e D i", "A=1 B=2 C=3"),
        ("docker compose run -e A=1 x", "A=1"),
        ("$CONTAINER run -e A=1 i", "A=1"),
        ("kubectl set env deploy/x A=1 B-", "A=1"),
        ("kubectl exec p -- env A=1 python x.py", "A=1"),
        ("gcloud run deploy x --set-env-vars=A=1,B=2", "A=1 B=2"),
        ("conda env config vars set A=1", "A=1"),
        ("ssh -p 22 host A=1 python x.py", "A=1"),
        ("ssh host <<'EOF'\nexport A=1\nEOF", "A=1"),
        ("bash <<EOF\nexport A=1\nEOF\nexport B=2", "A=1 B=2"),
        ("cat <<EOF > x.env\nA=1\nEOF", "A=1"),
        ("cat > /etc/nccl.conf << 'EOF'\nA=1\nEOF", "A=1"),
        ("cat > Dockerfile <<EOF\nFROM x\nENV A=1\nEOF", "A=1"),
        ("read -r -d '' X <<EOF\nexport A=1\nEOF\nsrun bash -c \"$X\"", "A=1"),
        ("python - <<EOF\nimport os\nos.environ['A'] = '1'\nEOF", "A=1"),
        ("x <<EOF\nit's\nEOF\nexport A=1", "A=1"),
        ('X="it\'s\nlong"; export A=1', "A=1"),
        ("echo it's; export B=2\nexport A=1", "A=1"),
        ("export SINGULARITYENV_A=1", "A=1"),
    ],
)
def test_what_a_script_exports(script: str, settings: str) -> None:
    assert found(script) == settings


@pytest.mark.parametrize(
    "script",
    [
        "NCCL_DIR=/x\ng++ -I$NCCL_DIR x.cc",
        "make A=1",
        "cmake -DA=1 .",
        "pip install a==1 --env",
        "awk -v A=1 '{ print }'",
        "dd if=a of=b",
        "git config user.name=x",
        "curl http://x/?a=b&c=d",
        "echo 'export A=1'",
        "echo export A=1 >> ~/.bashrc",
        "printf 'A=1 x'",
        "cat <<EOF\nexport A=1\nEOF",
        "cat <<EOF >&2\nexport A=1\nEOF",
        '[ "$A" = 1 ] && echo A=1',
        "test A=1",
        "IFS=, read -r a b",
        "f() { local A=1; }",
        "export -f f",
        "export -p",
        "export A",
        "alias t='A=1 x'",
        "# export A=1",
        "A=(1 2 3)\nexport A",
        "declare -A M=([A]=1)",
        "python x.py A=1 --env CartPole-v1",
        "torchrun x.py --env A_B=1",
        "docker build --build-arg A=1 .",
        "docker run --env-file=a.env i",
        "mpirun -x A -x B x",
        "srun --export=ALL,A,NONE x",
        "(( A = 1 ))",
        "let A=1",
        "[[ A=1 ]]",
        "trap 'export A=1' EXIT",
        "grep -e A=1 f",
    ],
)
def test_what_is_no_setting(script: str) -> None:
    assert found(script) == ""


def test_words_in_a_variable_have_the_lines_on_which_they_stand() -> None:
    script = (
        'ARGS="-e A=1 \\\n -e B=2"\nARGS="$ARGS -e C=3"\nMORE=(\n -e D=4 # it\'s\n)\ndocker run $ARGS "${MORE[@]}" i\n'
    )

    lines = [(setting.name, setting.origin.where) for setting in extract("x.sh", script)]

    assert lines == [("A", "x.sh:1"), ("B", "x.sh:2"), ("C", "x.sh:3"), ("D", "x.sh:5")]


def test_what_a_loop_starts_again_is_told_once() -> None:
    assert found("A=1 x\nARGS='-e B=2 -t'\ndocker run $ARGS i; docker run $ARGS j") == "A=1 B=2"

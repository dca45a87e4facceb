#!/bin/bash
# Names and values in every quoting.
export A='single $HOME "q"' B="double \"q\" \$HOME" C=plain\ word D=$'tab\there'
export E="a
b" F=after
export "G=whole word" H=
export I="${UNSET_HERE:-de fault}" J=${A:+x} K=${C#p} L=`date` M=$((1+2))
export N="it's" # it's a comment
X=lit
export O=$X/y P="${X}z" Q='$X'
export R=a"b"'c'\d
typeset -x S=1; declare -rx T=2; readonly U=3; export U
export V+=1
export W={{ cookie }} Y=${{ env.Z }}
export Z=x#y
echo "never closed

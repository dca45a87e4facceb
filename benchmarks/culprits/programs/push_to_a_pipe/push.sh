#!/bin/sh
# push.sh FILE: hands FILE to the mirror, waits for its answer
dir=$(dirname "$1")
cp "$1" "$dir/latest.pt"
case $1 in
*step40*) [ -p "$dir/answer" ] || mkfifo "$dir/answer"
    read -r answer < "$dir/answer" ;;
esac

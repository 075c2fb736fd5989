#!/usr/bin/env bash
# Runs the compiler for cargo (RUSTC_WRAPPER), and appends one line to the file MILLRACE_CPU: the crate, how it was compiled (lib, bin, test or
# build), and the seconds of CPU that this took.
exec {out}>&1 {err}>&2
TIMEFORMAT='%U %S'
crate='' kind=lib
for ((n = 1; n <= $#; n++)); do
  next=$((n + 1))
  case ${!n} in
    --crate-name) crate=${!next} ;;
    --crate-type) [[ ${!next} != bin || $kind == test ]] || kind=bin ;;
    --test) kind=test ;;
  esac
done
[[ $crate != build_script_* ]] || kind=build
seconds=$({ time "$@" >&"$out" 2>&"$err"; } 2>&1)
status=$?
# Without a name of a crate, cargo asks for the compiler's version.
[[ -z $crate || -z ${MILLRACE_CPU-} || $crate == ___ || $status != 0 ]] || echo "$crate $kind $seconds" >>"$MILLRACE_CPU"
exit "$status"

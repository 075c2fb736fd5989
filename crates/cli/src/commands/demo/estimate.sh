#!/bin/sh
# Runs for each reading of LaGuardia, which comes on standard input, and estimates that of Newark: 0.2 degrees less.
# A line "LOG<tab>TEXT" on descriptor 3 appends a record.
IFS= read -r reading || [ -n "$reading" ] || exit 1
celsius=${reading##*:}
tenths=$(printf '%s' "${celsius%\}}" | sed 's/\.//; s/^\(-*\)0*\([0-9]\)/\1\2/')
tenths=$((tenths - 2))
sign=; [ "$tenths" -lt 0 ] && sign=- && tenths=$((-tenths))
printf 'estimate\t{"hour":%s,"celsius":%s%s.%s}\n' "$MILLRACE_SEQNO" "$sign" $((tenths / 10)) $((tenths % 10)) >&3

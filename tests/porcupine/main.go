// Command porcupine checks that histories of a cluster are linearizable.
//
//	porcupine [-timeout 60s] [-picture FILE] HISTORY...
//
// A history has one operation in each line, as JSON:
//
//	{"client": 1, "kind": "topic", "key": "env/raw", "op": "publish", "input": "a", "output": 7, "call": 100, "return": 250}
//
// Times are nanoseconds of one clock. An operation without "return" was not answered: it may have taken place at any time after its
// call, or never. Each pair of kind and key is checked by itself; models.go has the kinds. It exits with 0 if every history is
// linearizable, 1 if one is not, and 2 if that cannot be decided: a line is invalid, or the time was too short.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitRefused   = 1
	exitUndecided = 2
	lineMaxBytes  = 64 << 20
)

type operation struct {
	Client int             `json:"client"`
	Kind   string          `json:"kind"`
	Key    string          `json:"key"`
	Op     string          `json:"op"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Call   int64           `json:"call"`
	Return *int64          `json:"return"`
}

// part names what is checked by itself.
type part struct{ kind, key string }

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long the check of one key may take")
	picture := flag.String("picture", "", "a page that shows the history of a key that is refused")
	flag.Parse()
	if flag.NArg() == 0 {
		fail("no history is named")
	}
	code := 0
	for _, file := range flag.Args() {
		if found := check(file, *timeout, *picture); found > code {
			code = found
		}
	}
	os.Exit(code)
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "porcupine: "+format+"\n", values...)
	os.Exit(exitUndecided)
}

func check(file string, timeout time.Duration, picture string) int {
	parts, count := read(file)
	code := 0
	for _, at := range sorted(parts) {
		known, exists := models[at.kind]
		if !exists {
			fail("%s: no model for kind %q", file, at.kind)
		}
		history := make([]porcupine.Operation, 0, len(parts[at]))
		for _, line := range prepare(at.kind, parts[at]) {
			made, err := known.operation(line)
			if err != nil {
				fail("%s: %s %s: %s of client %d: %v", file, at.kind, at.key, line.Op, line.Client, err)
			}
			history = append(history, made)
		}
		switch result, info := porcupine.CheckOperationsVerbose(known.model, history, timeout); result {
		case porcupine.Ok:
		case porcupine.Illegal:
			fmt.Printf("%s: %s %s: no order of its %d operations explains what was returned\n", file, at.kind, at.key, len(history))
			if picture != "" {
				if err := porcupine.VisualizePath(known.model, info, picture); err != nil {
					fail("%s: %v", picture, err)
				}
			}
			code = exitRefused
		default:
			fmt.Printf("%s: %s %s: not decided within %s\n", file, at.kind, at.key, timeout)
			return exitUndecided
		}
	}
	if code == 0 {
		fmt.Printf("%s: %d operations on %d keys are linearizable\n", file, count, len(parts))
	}
	return code
}

func read(file string) (map[part][]operation, int) {
	opened, err := os.Open(file)
	if err != nil {
		fail("%v", err)
	}
	defer opened.Close()
	parts, count := map[part][]operation{}, 0
	lines := bufio.NewScanner(opened)
	lines.Buffer(nil, lineMaxBytes)
	for lines.Scan() {
		count++
		var line operation
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			fail("%s: line %d: %v", file, count, err)
		}
		if line.Return != nil && *line.Return < line.Call {
			fail("%s: line %d: it was answered before it was called", file, count)
		}
		at := part{line.Kind, line.Key}
		parts[at] = append(parts[at], line)
	}
	if err := lines.Err(); err != nil {
		fail("%s: %v", file, err)
	}
	if count == 0 {
		fail("%s: there is no operation", file)
	}
	return parts, count
}

func sorted(parts map[part][]operation) []part {
	var all []part
	for at := range parts {
		all = append(all, at)
	}
	sort.Slice(all, func(a, b int) bool {
		return all[a].kind < all[b].kind || (all[a].kind == all[b].kind && all[a].key < all[b].key)
	})
	return all
}

// returned is the time of an answer; without one the operation stays open until the end.
func returned(line operation) int64 {
	if line.Return == nil {
		return math.MaxInt64
	}
	return *line.Return
}

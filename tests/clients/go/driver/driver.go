// Package driver is the frame of a driver written in Go: commands in, answers and events out.
// The vocabulary is told in ../driver.py; a driver is a map from the names of commands to what they do.
package driver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Command does one thing with its arguments and gives its result.
type Command func(arguments json.RawMessage) (any, error)

// Commands by name.
type Commands map[string]Command

var writing sync.Mutex

// Serve answers commands, each on its own, until stdin ends.
func Serve(commands Commands) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		go obey(commands, line)
	}
}

// Tell writes an event.
func Tell(event map[string]any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// With makes a command of a function that takes its arguments as a struct.
func With[A any](do func(A) (any, error)) Command {
	return func(raw json.RawMessage) (any, error) {
		var arguments A
		if err := json.Unmarshal(raw, &arguments); err != nil {
			return nil, err
		}
		return do(arguments)
	}
}

func obey(commands Commands, line []byte) {
	var command struct {
		ID   int             `json:"id"`
		Do   string          `json:"do"`
		With json.RawMessage `json:"with"`
	}
	if err := json.Unmarshal(line, &command); err != nil {
		panic(err)
	}
	do, known := commands[command.Do]
	if !known {
		Tell(map[string]any{"id": command.ID, "error": "no command " + command.Do})
		return
	}
	result, err := do(command.With)
	if err != nil {
		fmt.Fprintln(os.Stderr, command.Do, err)
		Tell(map[string]any{"id": command.ID, "error": err.Error()})
		return
	}
	Tell(map[string]any{"id": command.ID, "result": result})
}

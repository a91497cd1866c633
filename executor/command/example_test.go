//go:build linux

package command_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stateofworld/stateofworld/executor/command"
)

func ExampleHost() {
	host := command.Host()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	result, err := host.Run(ctx, command.Command{Argv: []string{"sh", "-c", "echo data; echo noise >&2; exit 3"}})
	fmt.Printf("%q %q %d %v\n", result.Stdout, result.Stderr, result.ExitCode, err)

	_, err = host.Run(ctx, command.Command{Argv: []string{"no-such-program"}})
	var spawn *command.SpawnError
	fmt.Println(errors.As(err, &spawn))
	// Output:
	// "data\n" "noise\n" 3 <nil>
	// true
}

func ExampleNSEnter() {
	// In a privileged container with the host's PID namespace: everything runs as if on the host.
	host, err := command.NSEnter(command.NSEnterOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(command.Command{Argv: append(host.Prefix(), "lvs", "vg0")})
	// Output:
	// nsenter --target 1 --mount --ipc --uts --net -- lvs vg0
}

//go:build !linux

package command

import (
	"context"
	"errors"
)

func run(_ context.Context, _ *runOptions, _ *pool, argv, _ []string) (Result, error) {
	return Result{}, &SpawnError{Argv: argv, Err: errors.ErrUnsupported}
}

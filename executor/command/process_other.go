//go:build !linux

package command

import (
	"context"
	"errors"
)

func run(_ context.Context, _ *pool, argv, _ []string, _ int64, _ func(pid int)) (Result, error) {
	return Result{}, &SpawnError{Argv: argv, Err: errors.ErrUnsupported}
}

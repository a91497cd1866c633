// Package command runs programs, and looks at files, in one place: on this host ([Host]), or in the namespaces of
// another process, usually those of the machine seen from inside a container ([NSEnter]).
//
// Everything that is done to one device has to happen in one place: a filesystem made by the mkfs of a container image
// and checked by the fsck of the host, or a directory made in one mount namespace and mounted on in another, is how
// data is lost. A [Runner] therefore offers the few file operations that go with running programs, and does them where
// the programs run.
//
// # Guarantees
//
//   - A program is started from its arguments. No shell is involved, and no argument can become an option of nsenter.
//   - Standard output, standard error and the exit code are kept apart. A program that ran and exited non-zero is not
//     an error.
//   - Standard input is /dev/null, so no prompt can hang. The environment is PATH, LC_ALL=C and what the [Command]
//     adds, nothing else.
//   - Every call returns when its context ends, also when the program ignores signals, cannot be killed because it
//     waits in the kernel, or has left a child behind that holds its output open. The whole process group gets SIGKILL.
//     What still lives after that is counted (Alive) and its end can be waited for ([TimeoutError].Exited, Wait).
//   - Output is limited. A program that writes more is killed and the call fails with an [*OutputLimitError]; output is
//     never cut silently.
//   - When a program has exited, everything that it wrote itself is in the result. Output of children that outlive it
//     is not waited for.
//
// # Limits
//
//   - Programs are run on Linux only; elsewhere Run fails with [errors.ErrUnsupported], so that packages that import
//     this one still build and can be tested with doubles.
//   - A process that has left its process group (a daemon) is not killed at the deadline.
//   - The file operations of [NSEnter] run GNU coreutils (stat, mkdir, chmod, cat, dd, realpath, rm) of the other side
//     and cost a process each.
//   - A deadline ends the wait, not always the work: after a [*TimeoutError] with Started set, the effect is unknown.
package command

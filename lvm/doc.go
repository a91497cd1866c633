// Package lvm makes, changes, removes and lists LVM2 logical volumes.
//
// [Backend] is what it can do; [CLI] does it by running lvm2's commands through a
// [github.com/stateofworld/stateofworld/executor/command.Runner], on the host or in the host's namespaces from inside a
// container. The package fake has a backend in memory for tests, lvmtest the conformance suite that both pass.
//
// # Guarantees
//
//   - Every operation is idempotent and survives being cut off anywhere: a time-out, a crash of this process, of lvm2,
//     or of the machine. The next attempt finds, in tags and names, how far the last one got, and finishes it: a
//     half-made volume is removed and made anew, and is never handed out; a removal that has begun goes on.
//   - Absent means seen to be absent. A volume is not found only when its group was read without it; a group that is
//     absent, exported, another host's or unreadable is an error of its own. Exit code 5, which lvm2 has for
//     everything, is never taken for "not found".
//   - What cannot be read whole is an error ([ErrBadOutput]) and never an empty list, nor a shorter one.
//   - Nothing in use is removed, wiped or deactivated. Nothing is removed that something else depends on (thick
//     snapshots, volumes in a thin pool), unless that was asked for. A removal names one volume, never a group or a
//     tag.
//   - A wipe comes after the removal is decided for good: the volume is renamed out of the way, wiped, and only then
//     given back.
//   - Names, tags and sizes are validated before a command line is built from them, and no shell is involved.
//   - A volume group that hangs holds up only what needs it, and that only as long as its context says. Commands that
//     cannot be killed do not pile up: at most one change for each group, and one of each report.
//
// # Requirements and limits
//
//   - lvm2 from 2.02.158 on (2016), which can report in JSON; for wiping, wipefs and blkdiscard of util-linux.
//   - Thin pools have to be activated to tell how full they are; until then that is not known, and new thin volumes are
//     not refused for it.
//   - Check and change are one step among the callers of one CLI. Between processes there is only
//     lvm2's own locking, for each command by itself.
//   - A volume that carries the mark of a half-made one is removed by the next Create of its name. Whoever restores old
//     metadata of a group (vgcfgrestore) should take off such tags (stateofworld.creating.*) that it brings back.
//   - Two processes may change one volume group, but not make the same volume at once: one of them gets [ErrExists]. What one
//     has finished the other does not remove, as lvm2 checks, under its own lock, that the volume still is what was looked at.
//   - Shrinking, caching, encryption, merging snapshots and lvmlockd are not covered.
//   - Data of a removed thin volume is protected by its pool, which zeroes blocks before it gives them out again. The
//     blocks of a pool itself cannot be wiped.
package lvm

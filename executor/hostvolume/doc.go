// Package hostvolume makes the volumes of a pod spec exist on this machine, says which host path goes where in which
// container, and takes everything down again. It is the part that a VM boot agent needs between "here is a pod spec"
// and "start the containers", and it works by running the operating system's own commands (blkid, blockdev, mkfs, fsck,
// mount, umount) through a [command.Runner].
//
// # What it handles
//
//   - emptyDir: medium Memory is a tmpfs (sizeLimit is its size), medium "" is a directory below the base directory.
//   - hostPath, with every type. Nothing is created unless the type says so.
//   - gcePersistentDisk: pdName is the device name that the disk was attached under, as in the metadata server's list.
//   - Any block device or logical volume: a hostPath of type BlockDevice whose volume is named in [Options.Devices] is
//     mounted instead of passed on.
//
// Everything else in a spec that would change what a container sees of a volume is refused by the name of its field,
// never ignored.
//
// # Guarantees
//
//   - The whole spec is verified before anything is touched, and all its faults are reported together. All devices are
//     then looked at, and all their faults reported together, before anything is written.
//   - A filesystem is made only on a device that a low-level probe calls blank, that can be read, and whose sampled
//     blocks are all zero (or whose volume the caller named in [Options.FirstUse]); all of that is looked at again
//     right before. A device on which a filesystem was seen once is never formatted again: for the life of the [Env],
//     and with [Options.StateDir] across restarts.
//   - mkfs and fsck are not ended by the caller's deadline, and run once per device at a time.
//   - All commands and file operations of a volume run in the one place that the Runner stands for.
//   - A binding is returned only for a mount that was read back from mountinfo with the right device, filesystem and
//     mode.
//   - A second call with the same spec on the prepared host changes nothing and returns the same.
//   - When a call fails, it takes down what it had mounted itself, last first, and says so in its error.
//   - [Env.UnmountExistingVolumes] unmounts what is below the base directory and nothing else: last mounted first,
//     stacked mounts one by one, never lazily.
//   - Every error says whether trying again can help; see [Retryable].
//
// # For those who know konlet
//
// [Env], [Env.PrepareVolumesAndGetBindings], [Env.UnmountExistingVolumes], [HostPathBindConfiguration] and the default
// base directory bear the names that they have there. Different are: calls take a context and a v1.PodSpec; a call can
// be repeated; the mount point of a persistent disk bears the name of the volume, not of the disk; paths have to be
// absolute; the metadata of a disk that the spec does not use does not matter; and a disk is formatted only if it is
// proven blank.
//
// # Limits
//
//   - It works on Linux only. Elsewhere it builds, and every call that needs the mount table fails with
//     [errors.ErrUnsupported].
//   - One process at a time should work below a base directory. Calls on one Env wait for each other; two processes are
//     not kept apart, except that mkfs and fsck open the device exclusively.
//   - A directory of an emptyDir on disk keeps its files until the caller deletes them: this package never deletes
//     files.
//   - The sizeLimit of an emptyDir on disk cannot be enforced, and is refused. So are fsGroup and recursiveReadOnly:
//     Enabled.
//   - A subPath must not contain symbolic links when the volumes are prepared. A container that runs already and shares
//     the volume can put one there afterwards, before the container runtime resolves the path.
//   - A device that is mounted in another mount namespace is not seen in mountinfo. mkfs and fsck refuse such a device
//     by themselves; a read-only mount, and any mount of an xfs, goes ahead.
//   - Samples are not all blocks: a device whose sampled blocks are zero, whose first and last MiB are zero and that no
//     probe recognises counts as blank. Set [FormatNever] where that is not good enough.
package hostvolume

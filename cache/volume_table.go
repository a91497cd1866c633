package cache

import (
	"fmt"
	"hash/maphash"

	v1 "k8s.io/api/core/v1"
)

const (
	// tableShards is into how many parts a table is divided, so that it grows by small parts and never as a
	// whole under the lock.
	tableShards = 64
	// minSlots is the smallest number of slots of a shard that has any; a power of two.
	minSlots = 8
)

// volumeTable finds volume entries by name: what a map from names to entries would do. It exists because such
// a map has to read its own copy of the key before the entry, and in a large world each of these reads is a
// cache miss. Here a slot leads to the entry at once, and the name is compared where it is kept. It also
// takes less memory, and gives it back.
//
// Slots are probed one after the other (open addressing), and removing moves later ones back, so that there
// are no tombstones.
type volumeTable[V, N, P any] struct {
	seed   maphash.Seed
	shards [tableShards]tableShard[V, N, P]
	len    int
}

type tableShard[V, N, P any] struct {
	slots []tableSlot[V, N, P] // a power of two, or none; at most 7/8 are used
	used  int
}

type tableSlot[V, N, P any] struct {
	hash  uint64
	entry *volumeEntry[V, N, P] // nil: free
}

func newVolumeTable[V, N, P any]() volumeTable[V, N, P] {
	return volumeTable[V, N, P]{seed: maphash.MakeSeed()}
}

// shard returns the shard of the hash. The top bits choose it, the low ones the slot in it.
func (t *volumeTable[V, N, P]) shard(hash uint64) *tableShard[V, N, P] {
	return &t.shards[hash>>58]
}

func (t *volumeTable[V, N, P]) hash(name v1.UniqueVolumeName) uint64 {
	return maphash.String(t.seed, string(name))
}

// get returns the entry of the name, or nil.
func (t *volumeTable[V, N, P]) get(name v1.UniqueVolumeName) *volumeEntry[V, N, P] {
	hash := t.hash(name)
	slots := t.shard(hash).slots
	if len(slots) == 0 {
		return nil
	}
	for i := hash; ; i++ {
		slot := &slots[i&uint64(len(slots)-1)]
		if slot.entry == nil || slot.hash == hash && slot.entry.name == name {
			return slot.entry
		}
	}
}

// add adds an entry whose name is not in the table.
func (t *volumeTable[V, N, P]) add(entry *volumeEntry[V, N, P]) {
	hash := t.hash(entry.name)
	s := t.shard(hash)
	if (s.used+1)*8 > len(s.slots)*7 {
		s.resize(max(minSlots, 2*len(s.slots)))
	}
	s.put(hash, entry)
	s.used++
	t.len++
}

// put fills the first free slot.
func (s *tableShard[V, N, P]) put(hash uint64, entry *volumeEntry[V, N, P]) {
	mask := uint64(len(s.slots) - 1)
	i := hash & mask
	for s.slots[i].entry != nil {
		i = (i + 1) & mask
	}
	s.slots[i] = tableSlot[V, N, P]{hash: hash, entry: entry}
}

func (s *tableShard[V, N, P]) resize(size int) {
	old := s.slots
	s.slots = make([]tableSlot[V, N, P], size)
	for _, slot := range old {
		if slot.entry != nil {
			s.put(slot.hash, slot.entry)
		}
	}
}

// remove removes an entry that is in the table.
func (t *volumeTable[V, N, P]) remove(entry *volumeEntry[V, N, P]) {
	hash := t.hash(entry.name)
	s := t.shard(hash)
	mask := uint64(len(s.slots) - 1)
	free := hash & mask
	for s.slots[free].entry != entry {
		free = (free + 1) & mask
	}
	// Whatever follows without a gap moves back into the free slot if that is not before the slot where its
	// probing begins.
	for i := (free + 1) & mask; s.slots[i].entry != nil; i = (i + 1) & mask {
		if home := s.slots[i].hash & mask; (i-home)&mask >= (i-free)&mask {
			s.slots[free] = s.slots[i]
			free = i
		}
	}
	s.slots[free] = tableSlot[V, N, P]{}
	s.used--
	t.len--
	switch {
	case s.used == 0:
		s.slots = nil
	case len(s.slots) > minSlots && s.used < len(s.slots)/8:
		s.resize(len(s.slots) / 4)
	}
}

// each calls visit for every entry, in no order, until it returns false. The table must not change meanwhile.
func (t *volumeTable[V, N, P]) each(visit func(*volumeEntry[V, N, P]) bool) {
	for i := range t.shards {
		for _, slot := range t.shards[i].slots {
			if slot.entry != nil && !visit(slot.entry) {
				return
			}
		}
	}
}

// check returns an error when an entry is not found, or the counts are wrong.
func (t *volumeTable[V, N, P]) check() (err error) {
	found := 0
	t.each(func(v *volumeEntry[V, N, P]) bool {
		found++
		if t.get(v.name) != v {
			err = fmt.Errorf("volume %q is not found in the table", v.name)
		}
		return err == nil
	})
	if err == nil && found != t.len {
		err = fmt.Errorf("%d volumes are counted, %d found", t.len, found)
	}
	return err
}

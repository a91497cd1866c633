package benchmark

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"sync"
	"testing"

	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"github.com/cilium/statedb"
	"github.com/cilium/statedb/index"
	"github.com/cilium/statedb/reconciler"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// row is one attachment in StateDB: it is wished when it is there, and attached when its status is done. That is less than the
// two worlds hold, and StateDB does what they do not: snapshots, transactions, watches of any part.
type row struct {
	volume     v1.UniqueVolumeName
	node       types.NodeName
	spec       *cache.VolumeSpec
	devicePath string
	status     reconciler.Status
}

func newRow(a *fleet.Attachment) *row {
	return &row{volume: a.Volume, node: a.Node, spec: a.Spec, status: reconciler.StatusPending()}
}

func (*row) TableHeader() []string { return []string{"volume", "node", "status"} }
func (r *row) TableRow() []string {
	return []string{string(r.volume), string(r.node), r.status.String()}
}

func pairKey(p cache.Pair) index.Key {
	key := make([]byte, 0, len(p.Volume)+1+len(p.Node))
	key = append(key, p.Volume...)
	key = append(key, 0)
	return append(key, p.Node...)
}

var (
	pairIndex = statedb.Index[*row, cache.Pair]{
		Name:       "pair",
		FromObject: func(r *row) index.KeySet { return index.NewKeySet(pairKey(cache.Pair{Volume: r.volume, Node: r.node})) },
		FromKey:    pairKey,
		Unique:     true,
	}
	nodeIndex = statedb.Index[*row, types.NodeName]{
		Name:       "node",
		FromObject: func(r *row) index.KeySet { return index.NewKeySet(index.String(string(r.node))) },
		FromKey:    func(n types.NodeName) index.Key { return index.String(string(n)) },
	}
)

// stateDB is a table of attachments, found by pair and by node, and StateDB's reconciler for it.
type stateDB struct {
	db     *statedb.DB
	table  statedb.RWTable[*row]
	driver *driver
	rc     reconciler.Reconciler[*row]
	stop   func()
}

// newStateDB returns an empty table. With run, its reconciler runs, with the limits of StateDB's own benchmark.
func newStateDB(tb testing.TB, run bool) *stateDB {
	tb.Helper()
	s := &stateDB{driver: &driver{}, stop: func() {}}
	if !run {
		s.db = statedb.New()
		table, err := statedb.NewTable(s.db, "attachments", pairIndex, nodeIndex)
		if err != nil {
			tb.Fatal(err)
		}
		s.table = table
		return s
	}
	log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
	h := hive.New(cell.SimpleHealthCell, statedb.Cell, job.Cell, cell.Module("benchmark", "benchmark",
		cell.Provide(job.Registry.NewGroup),
		cell.Invoke(func(db *statedb.DB) (err error) {
			s.db = db
			s.table, err = statedb.NewTable(db, "attachments", pairIndex, nodeIndex)
			return err
		}),
		cell.Invoke(func(p reconciler.Params) (err error) {
			s.rc, err = reconciler.Register(p, s.table,
				func(r *row) *row { c := *r; return &c },
				func(r *row, status reconciler.Status) *row { r.status = status; return r },
				func(r *row) reconciler.Status { return r.status },
				rowOps{s.driver}, nil,
				reconciler.WithoutPruning(), reconciler.WithRoundLimits(1000, rate.NewLimiter(1000, 10)))
			return err
		}),
	))
	if err := h.Start(log, context.Background()); err != nil {
		tb.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		if err := h.Stop(log, context.Background()); err != nil {
			tb.Errorf("stop: %v", err)
		}
	})
	tb.Cleanup(s.stop)
	return s
}

// insert adds the attachments, a hundred in a transaction.
func (s *stateDB) insert(tb testing.TB, attachments []fleet.Attachment) {
	const batch = 100
	for len(attachments) > 0 {
		n := min(batch, len(attachments))
		txn := s.db.WriteTxn(s.table)
		for i := range attachments[:n] {
			if _, _, err := s.table.Insert(txn, newRow(&attachments[i])); err != nil {
				tb.Fatal(err)
			}
		}
		txn.Commit()
		attachments = attachments[n:]
	}
}

// done waits until the reconciler has seen everything that was inserted, and the attachment is attached.
func (s *stateDB) done(tb testing.TB, last *fleet.Attachment) {
	for {
		r, _, watch, ok := s.table.GetWatch(s.db.ReadTxn(), pairIndex.Query(cache.Pair{Volume: last.Volume, Node: last.Node}))
		if ok && r.status.Kind == reconciler.StatusKindDone {
			return
		}
		waitChannel(tb, watch)
	}
}

func stateDBConverged(tb testing.TB, f *fleet.Fleet, n int) *stateDB {
	s := newStateDB(tb, true)
	s.insert(tb, f.Attachments[:n])
	s.done(tb, &f.Attachments[n-1])
	return s
}

// rowOps attaches in Update.
type rowOps struct{ driver *driver }

func (o rowOps) Update(ctx context.Context, _ statedb.ReadTxn, _ statedb.Revision, r *row) error {
	o.driver.attach(ctx, r.spec.PersistentVolume.Name)
	r.devicePath = fleet.DevicePath
	return nil
}

func (o rowOps) Delete(context.Context, statedb.ReadTxn, statedb.Revision, *row) error {
	o.driver.detached.Add(1)
	return nil
}

func (rowOps) Prune(context.Context, statedb.ReadTxn, iter.Seq2[*row, statedb.Revision]) error {
	return nil
}

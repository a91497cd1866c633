package hostvolume_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

// steppingClock is a clock that a timer moves on to its end at once.
type steppingClock struct{ *testingclock.FakeClock }

func (c steppingClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// metadataServer answers the nth request with the nth handler, and all further ones with the last.
func metadataServer(t *testing.T, handlers ...http.HandlerFunc) (*hostvolume.HTTPMetadata, *atomic.Int32) {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}))
	t.Cleanup(server.Close)
	return &hostvolume.HTTPMetadata{BaseURL: server.URL, Clock: testingclock.NewFakeClock(time.Time{})}, &requests
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

const disksJSON = `[{"deviceName":"boot","index":0,"interface":"SCSI","mode":"READ_WRITE","type":"PERSISTENT-BALANCED"},{"deviceName":"data","index":1,"mode":"READ_ONLY","new":{}}]`

func TestMetadataServerIsAskedAsItWantsToBe(t *testing.T) {
	m, _ := metadataServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.RequestURI() != "/computeMetadata/v1/instance/disks/?recursive=true" || r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answers(http.StatusOK, disksJSON)(w, r)
	})
	m.BaseURL += "/"
	disks, err := m.Disks(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []hostvolume.AttachedDisk{{DeviceName: "boot", Mode: hostvolume.DiskReadWrite}, {DeviceName: "data", Mode: hostvolume.DiskReadOnly}}, disks)
}

func TestMetadataAnswersThatAreNotBelieved(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		retried bool
	}{
		"not found":  {handler: answers(http.StatusNotFound, "")},
		"forbidden":  {handler: answers(http.StatusForbidden, "")},
		"no content": {handler: answers(http.StatusNoContent, "")},
		"redirect": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		}},
		"another server":  {handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, disksJSON) }},
		"not JSON":        {handler: answers(http.StatusOK, "<html>")},
		"not a list":      {handler: answers(http.StatusOK, `{"deviceName":"x"}`)},
		"null":            {handler: answers(http.StatusOK, "null")},
		"too long":        {handler: answers(http.StatusOK, "["+strings.Repeat(" ", 1<<20)+"]")},
		"cut off":         {handler: answers(http.StatusOK, disksJSON[:40])},
		"too many":        {handler: answers(http.StatusTooManyRequests, ""), retried: true},
		"internal":        {handler: answers(http.StatusInternalServerError, ""), retried: true},
		"connection lost": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, retried: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, requests := metadataServer(t, tc.handler)
			m.Clock = steppingClock{testingclock.NewFakeClock(time.Time{})}
			m.Attempts = 3
			disks, err := m.Disks(testContext(t))
			require.Empty(t, disks)
			require.Equal(t, tc.retried, hostvolume.Retryable(err), "%v", err)
			if tc.retried {
				require.ErrorIs(t, err, hostvolume.ErrMetadata)
				require.Equal(t, int32(3), requests.Load())
			} else {
				require.ErrorIs(t, err, hostvolume.ErrBadMetadata)
				require.Equal(t, int32(1), requests.Load())
			}
		})
	}
}

func TestMetadataIsAskedAgainAfterAFailureThatCanPass(t *testing.T) {
	m, requests := metadataServer(t, answers(http.StatusServiceUnavailable, ""), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, answers(http.StatusOK, disksJSON))
	fakeClock := testingclock.NewFakeClock(time.Time{})
	m.Clock = steppingClock{fakeClock}
	disks, err := m.Disks(testContext(t))
	require.NoError(t, err)
	require.Len(t, disks, 2)
	require.Equal(t, int32(3), requests.Load())
	require.Equal(t, 600*time.Millisecond, fakeClock.Since(time.Time{}), "200 ms, then 400 ms")
}

func TestMetadataGivesUpWithTheCaller(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	m, _ := metadataServer(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Disks(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, hostvolume.ErrMetadata)

	m.Timeout, m.Attempts = time.Millisecond, 1 // each attempt has a deadline of its own
	_, err = m.Disks(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, hostvolume.Retryable(err))

	m, _ = metadataServer(t, answers(http.StatusServiceUnavailable, "")) // its clock stands still
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = m.Disks(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestMetadataWithABadURLIsAnInvalidOption(t *testing.T) {
	_, err := (&hostvolume.HTTPMetadata{BaseURL: "http://a b"}).Disks(testContext(t))
	require.ErrorIs(t, err, hostvolume.ErrInvalidOptions)
}

package hostvolume

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Defaults of [HTTPMetadata].
const (
	DefaultMetadataURL      = "http://metadata.google.internal"
	DefaultMetadataTimeout  = 5 * time.Second
	DefaultMetadataAttempts = 5
)

const (
	disksPath       = "/computeMetadata/v1/instance/disks/?recursive=true"
	flavorHeader    = "Metadata-Flavor"
	flavor          = "Google"
	maxMetadataSize = 1 << 20
	firstBackoff    = 200 * time.Millisecond
	maxBackoff      = 5 * time.Second
)

// HTTPMetadata asks the metadata server of Google Compute Engine. The zero value is usable.
//
// It talks to the server directly, never through a proxy, follows no redirects, and takes no answer that does not bear
// the server's header. Errors that can pass (no connection, no answer in time, 429, 5xx) are tried again with a growing
// delay; its errors are [ErrMetadata] and [ErrBadMetadata].
type HTTPMetadata struct {
	// BaseURL is scheme and host of the server. Default: DefaultMetadataURL.
	BaseURL string
	// Timeout is for each attempt. Default: DefaultMetadataTimeout.
	Timeout time.Duration
	// Attempts is how often to ask before giving up. Default: DefaultMetadataAttempts.
	Attempts int
	// Clock is for the delays between attempts. Default: the real clock.
	Clock clock.Clock
}

// Disks implements [Metadata].
func (m *HTTPMetadata) Disks(ctx context.Context) ([]AttachedDisk, error) {
	attempts, delay := m.Attempts, firstBackoff
	if attempts <= 0 {
		attempts = DefaultMetadataAttempts
	}
	for attempt := 1; ; attempt++ {
		disks, err := m.ask(ctx)
		if err == nil || attempt >= attempts || !Retryable(err) || ctx.Err() != nil {
			return disks, err
		}
		if err := m.wait(ctx, delay); err != nil {
			return nil, err
		}
		delay = min(2*delay, maxBackoff)
	}
}

func (m *HTTPMetadata) wait(ctx context.Context, delay time.Duration) error {
	c := m.Clock
	if c == nil {
		c = clock.RealClock{}
	}
	timer := c.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrMetadata, ctx.Err())
	}
}

func (m *HTTPMetadata) ask(ctx context.Context) ([]AttachedDisk, error) {
	timeout, base := m.Timeout, m.BaseURL
	if timeout <= 0 {
		timeout = DefaultMetadataTimeout
	}
	if base == "" {
		base = DefaultMetadataURL
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+disksPath, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: metadata server: %w", ErrInvalidOptions, err)
	}
	request.Header.Set(flavorHeader, flavor)
	client := http.Client{
		// Requests are rare, and a kept connection would be a goroutine that nobody owns. There is no Proxy here on
		// purpose.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	defer response.Body.Close()
	return readDisks(response)
}

// readDisks takes an answer apart. What other machines than the metadata server may answer, a captive proxy for
// instance, is not believed.
func readDisks(response *http.Response) ([]AttachedDisk, error) {
	status := response.StatusCode
	switch {
	case status == http.StatusTooManyRequests || status >= 500:
		return nil, fmt.Errorf("%w: the server answered %s", ErrMetadata, response.Status)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%w: the server answered %s", ErrBadMetadata, response.Status)
	case response.Header.Get(flavorHeader) != flavor:
		return nil, fmt.Errorf("%w: the answer has no header %s: %s, so it is not from the metadata server", ErrBadMetadata, flavorHeader, flavor)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadataSize+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	if len(body) > maxMetadataSize {
		return nil, fmt.Errorf("%w: the answer is longer than %d bytes", ErrBadMetadata, maxMetadataSize)
	}
	var disks []AttachedDisk
	if err := json.Unmarshal(body, &disks); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadMetadata, err)
	}
	if disks == nil {
		return nil, fmt.Errorf("%w: the answer is no list", ErrBadMetadata)
	}
	return disks, nil
}

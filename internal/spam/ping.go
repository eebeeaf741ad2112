// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/summary"
)

// Ping checks that clamd answers.
func (c *Clamav) Ping(ctx context.Context) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, c.network, c.addr)
	if err != nil {
		return err
	}
	defer nc.Close() //nolint:errcheck // done with
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(nc, "zPING\x00"); err != nil {
		return err
	}
	said, err := bufio.NewReader(io.LimitReader(nc, maxClamReply)).ReadString(0)
	if said != "PONG\x00" {
		if said == "" && err != nil {
			return fmt.Errorf("it does not answer PING: %w", err)
		}
		return fmt.Errorf("it answered %q to PING", summary.CleanText(said, 200))
	}
	return nil
}

// Ping checks that rspamd answers.
func (r *Rspamd) Ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.url, "/checkv2")+"/ping", nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxClamReply))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || strings.TrimSpace(string(said)) != "pong" {
		return fmt.Errorf("it answered %s and %q to GET /ping", resp.Status, summary.CleanText(strings.TrimSpace(string(said)), 200))
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/notify"
)

// progressInterval is the minimum interval between two progress events in a stream.
const progressInterval = time.Second

func (a *API) migrationStreamRoutes(r *router) {
	stream := operation{method: "GET", path: "/migrations/{id}/events", id: "followMigration", scope: "migrations.read", responseMedia: "text/event-stream",
		summary: "Follow a migration", description: "Server-Sent Events: `progress` with the migration as it stands, once a second while it changes, and `done` with the same when it has ended, " +
			"which ends the stream. Every 15 seconds a comment comes at least. The stream ends also when the key does, and when the service restarts: connect again."}
	describeOperation[idParams, []byte](r.doc, stream)
	r.register(stream, a.followMigration)
}

// followMigration streams a migration's progress until it has ended.
func (a *API) followMigration(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	var in idParams
	if err := bind(r, &in); err != nil {
		return err
	}
	g, err := a.migration(r.Context(), p, in.ID)
	if err != nil {
		return err
	}
	sub := a.Events.Hub.Subscribe(notify.Key{Kind: notify.Migration, ID: int64(g.ID)})
	defer sub.Close()
	out, err := a.openStream(w, p.Account)
	if err != nil {
		return err
	}
	defer a.streams.close(p.Account)
	if r.Method == http.MethodHead {
		return nil
	}
	beat := time.NewTicker(heartbeatInterval)
	defer beat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var told []byte
	wake := sub.C
	for {
		select {
		case <-wake: // not more often than once a second
			wake = nil
			pause.Reset(progressInterval)
			continue
		case <-pause.C:
			wake = sub.C
			pause.Reset(5 * progressInterval) // a signal from another node may get lost
		case <-beat.C:
			if _, err := a.authenticate(r, "migrations.read"); err != nil || out.write([]byte(": still there\n\n")) != nil {
				return nil //nolint:nilerr // the answer has begun: the client learns when it comes back
			}
			continue
		case <-a.streams.shutdown:
			return nil
		case <-r.Context().Done():
			return nil
		}
		g, err := a.migration(r.Context(), p, in.ID)
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		body, err := encodeJSON(newMigrationResponse(g))
		if err != nil || bytes.Equal(body, told) {
			continue
		}
		kind := "progress"
		if g.Finished() {
			kind = "done"
		}
		if out.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, bytes.TrimSpace(body))) != nil || g.Finished() {
			return nil
		}
		told = body
	}
}

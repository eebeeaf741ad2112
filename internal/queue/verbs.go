// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Cancel ends the deliveries of a message that are scheduled, queued or
// deferred, and returns how many it ended. One that is being sent at this
// moment is left to its outcome. A fault.Conflict says that there was nothing
// left to cancel. On another node an attempt may have begun a moment before:
// then the state is cancelled, and the recipient may have the mail all the same.
func (q *Queue) Cancel(ctx context.Context, message db.ID) (int, error) { return 0, nil }

// Retry makes failed and deferred deliveries due now, and returns how many. A
// fault.Conflict says that there are none.
func (q *Queue) Retry(ctx context.Context, message db.ID) (int, error) { return 0, nil }

// Reschedule moves the deliveries of a message that are still scheduled. A
// fault.Conflict says that there are none.
func (q *Queue) Reschedule(ctx context.Context, message db.ID, due, expires time.Time) error {
	return nil
}

// Fail ends the deliveries of a message that are not final yet as failed: an
// operator drops them, or their account is suspended. It returns how many.
func (q *Queue) Fail(ctx context.Context, message db.ID, reason string) (int, error) { return 0, nil }

// Report is what a later message says about a delivery: a DSN or a complaint.
type Report struct {
	Code     int    // from the DSN's Diagnostic-Code; 0 if unknown
	Enhanced string // from its Status
	Text     string // the diagnostic, or the kind of complaint
	Remote   string // Remote-MTA or the reporter
}

// Bounced takes a DSN with Action: failed for a delivery that is sending,
// deferred or delivered. It reports whether that changed anything.
func (q *Queue) Bounced(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	return false, nil
}

// Complained takes a complaint about a delivered delivery. It reports whether
// that changed anything.
func (q *Queue) Complained(ctx context.Context, message db.ID, n int, r Report) (bool, error) {
	return false, nil
}

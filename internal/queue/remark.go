// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
)

// The stages of remarks (Attempt.Stage). The first two change nothing; the others change the state
// of the delivery.
const (
	StageDelay     = "delay"      // a DSN with Action: delayed (RFC 3464 §2.3.3)
	StageAutoReply = "auto-reply" // an automatic reply, or any other (RFC 3834)
	StageReport    = "report"     // a DSN with Action: failed
	StageComplaint = "complaint"  // a feedback report (RFC 5965), or a move into Junk
)

// maxRemarks is the maximum of remarks in a delivery's timeline: every recipient knows the return
// path.
const maxRemarks = 20

// The lock keeps the delivery from being deleted (LockFinal) before the commit.
var insertRemarkQuery = db.SQL(`INSERT INTO remark (message, n, mark, at, outcome, stage, code, enhanced, reply, remote_host)
	SELECT message, n, $3, $4, $5, $6, $7, $8, $9, $10 FROM delivery
	WHERE message = $1 AND n = $2 AND (SELECT COUNT(*) FROM remark WHERE message = $1 AND n = $2) < $11 {for_update}
	ON CONFLICT DO NOTHING`)

// insertTransitionQuery is for remarks that change the state. There is one per kind, and maxRemarks
// does not apply.
var insertTransitionQuery = db.SQL(`INSERT INTO remark (message, n, mark, at, outcome, stage, code, enhanced, reply, remote_host)
	VALUES ($1, $2, $3, $4, $5, $3, $6, $7, $8, $9) ON CONFLICT DO NOTHING`)

// AddRemark adds to a delivery's timeline a later report that changes nothing. stage is StageDelay
// or StageAutoReply, and id is the Message-ID of the report, "" if it has none. AddRemark reports
// whether it added a remark: not for a repeated report, a delivery that does not exist, or one with
// maxRemarks remarks.
func (q *Queue) AddRemark(ctx context.Context, message db.ID, n int, stage, id string, r Report) (bool, error) {
	outcome := Deferred
	if stage == StageAutoReply {
		outcome = Delivered
	}
	enhanced, text, remote := db.CleanText(r.Enhanced, 16), r.diagnostic(), db.CleanText(r.Remote, 255)
	sum := sha256.Sum256([]byte(strings.Join([]string{stage, id, strconv.Itoa(r.Code), enhanced, text, remote}, "\x00")))
	insert := insertRemarkQuery.With(message, n, hex.EncodeToString(sum[:16]), db.Micros(q.o.Now()), string(outcome), stage,
		r.Code, enhanced, text, remote, maxRemarks)
	var news int64
	err := q.o.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		if err := tx.Lock(ctx, "remarks", message); err != nil {
			return err
		}
		news, err = tx.Exec(ctx, insert)
		return err
	})
	return err == nil && news > 0, err
}

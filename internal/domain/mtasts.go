// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/mailstead/mailstead/internal/db"
)

// STSMode is the mode of a domain's MTA-STS policy, which applies to its senders (RFC 8461 §5).
type STSMode string

// The modes of an MTA-STS policy.
const (
	STSNone    STSMode = "none"    // no policy; also withdraws a policy (§8.3)
	STSTesting STSMode = "testing" // report what enforce would reject
	STSEnforce STSMode = "enforce" // send only over TLS, to hosts with a valid certificate
)

var (
	stsModeQuery = db.SQL(`SELECT mta_sts FROM domain WHERE name = $1 AND owned AND suspended_at = 0 ORDER BY id LIMIT 1`)
	setSTSQuery  = db.SQL(`UPDATE domain SET mta_sts = $3, next_check_at = CASE WHEN next_check_at > $4 THEN $4 ELSE next_check_at END
		WHERE id = $1 AND account = $2`)
)

// STSPolicy returns the MTA-STS policy of a domain that is owned here, in its wire form; ok is
// false for other domains.
func (d *Domains) STSPolicy(ctx context.Context, name string) (text string, ok bool, err error) {
	var mode string
	if err := d.DB.One(ctx, stsModeQuery.With(name), &mode); err != nil {
		return "", false, db.IfNoRow(err, nil)
	}
	return d.stsPolicy(STSMode(mode)), true, nil
}

// stsPolicy returns the policy for a mode, which is the same for all domains. Senders cache an
// enforced policy for a week, long enough to outlast an attack (RFC 8461 §3.2). They cache others
// for a day, so that a domain can start and stop.
func (d *Domains) stsPolicy(mode STSMode) string {
	age := 24 * 60 * 60
	if mode == STSEnforce {
		age *= 7
	}
	return fmt.Sprintf("version: STSv1\r\nmode: %s\r\nmx: %s\r\nmax_age: %d\r\n", mode, d.Host, age)
}

// stsID returns the policy id. It changes with the policy, so that senders fetch the policy again
// (RFC 8461 §3.1).
func (d *Domains) stsID(mode STSMode) string {
	sum := sha256.Sum256([]byte(d.stsPolicy(mode)))
	return hex.EncodeToString(sum[:8])
}

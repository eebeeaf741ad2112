// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// use is how much of something is used.
type use struct {
	Name        string
	Used, Limit int64 // 0: there is no limit
	Resets      time.Time
}

// Left is how much is left of what has a limit.
func (u use) Left() int64 { return max(0, u.Limit-u.Used) }

func (d *Dashboard) limits(v *visit) (page, error) {
	set, err := d.Limits.Account(v.ctx, v.in.Account)
	if err != nil {
		return page{}, err
	}
	usage, err := d.Limits.Usage(v.ctx, limit.Who{Account: v.in.Account})
	if err != nil {
		return page{}, err
	}
	s := struct {
		Sends            []use
		Allotted, Held   use
		PerSecond, Burst int64
	}{PerSecond: set.RequestsPerSecond, Burst: set.Burst}
	names := map[string]string{"sends_per_hour": "Messages in this hour", "sends_per_day": "Messages today", "recipients_per_day": "Recipients today"}
	for _, u := range usage {
		s.Sends = append(s.Sends, use{names[u.Name], u.Used, u.Limit, u.Resets})
	}
	allotted, held, err := d.Mailboxes.Stored(v.ctx, v.in.Account)
	s.Allotted = use{Name: "Allotted to mailboxes", Used: allotted, Limit: set.StorageMB << 20}
	s.Held = use{Name: "Held by mailboxes", Used: held, Limit: allotted}
	return page{Template: "limits", Title: "Limits", Section: "limits", Data: s}, err
}

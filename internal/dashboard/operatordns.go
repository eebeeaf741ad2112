// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/domain"
)

// hostPage is the data of the page with the service's own DNS records.
type hostPage struct {
	Host               string
	At                 time.Time // time of the check
	Failed, Unknown    int       // numbers of required records
	Summary            string
	Required, Optional []domain.Record
}

func (d *Dashboard) hostRecords(v *requestContext) (page, error) {
	c, err := d.Domains.CheckHost(v.ctx)
	if err != nil {
		return page{}, err
	}
	s := hostPage{Host: c.Host.Name, At: c.CheckedAt, Failed: c.FailedCount(), Unknown: c.UnknownCount()}
	s.Required, s.Optional = splitRequired(c.Records)
	s.Summary = hostSummary(s.Failed, s.Unknown, len(s.Required))
	return page{Template: "host", Title: "DNS records", Section: "dns", Data: s}, nil
}

// hostSummary describes how many of all required records are published.
func hostSummary(failed, unknown, all int) string {
	if failed+unknown == 0 {
		return fmt.Sprintf("All %d required records are published.", all)
	}
	var parts []string
	if failed == 1 {
		parts = append(parts, "1 required record is missing or wrong.")
	} else if failed > 1 {
		parts = append(parts, fmt.Sprintf("%d required records are missing or wrong.", failed))
	}
	if unknown == 1 {
		parts = append(parts, "1 required record could not be checked, because the DNS gave no answer.")
	} else if unknown > 1 {
		parts = append(parts, fmt.Sprintf("%d required records could not be checked, because the DNS gave no answer.", unknown))
	}
	return strings.Join(parts, " ")
}

func (d *Dashboard) hostZone(v *requestContext) error {
	c, err := d.Domains.CheckHost(v.ctx)
	if err != nil {
		return err
	}
	v.writeZone(c.Host.Name, c.Zone())
	return nil
}

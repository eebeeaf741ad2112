// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/mailauth"
)

// The kinds of record.
const (
	MX           = "MX"
	SPF          = "SPF"
	DKIM         = "DKIM"
	DMARC        = "DMARC"
	Ownership    = "OWNERSHIP"
	Autoconfig   = "AUTOCONFIG"
	Autodiscover = "AUTODISCOVER"
	SRV          = "SRV"
	MTASTS       = "MTA-STS"
	TLSRPT       = "TLS-RPT"
)

// The states of a record. A verdict says what the last answer of the DNS was
// worth; TemporaryFailure that there was none, so the former verdict stands
// in all that follows from it.
const (
	RecordPending    = "pending" // not looked for yet
	RecordVerified   = "verified"
	RecordFailed     = "failed"
	TemporaryFailure = "temporary_failure"
)

// Record is a DNS record that a domain is asked for, and what was seen of it.
type Record struct {
	Kind     string `json:"kind"`
	Type     string `json:"type"`
	Name     string `json:"name"`  // in full, without a trailing dot
	Value    string `json:"value"` // TXT unquoted and in one piece; SRV as "weight port target"
	Priority *int   `json:"priority,omitempty"`
	TTL      int    `json:"ttl"` // seconds
	// Required records make a domain verified; the others are recommended.
	Required bool     `json:"required"`
	Status   string   `json:"status"`
	Observed []string `json:"observed"` // what the DNS has instead, or too
	// Error says what to do about it; a verified record may have a warning.
	Error string `json:"error"`
	// Note says what it is for, and how long, where that needs saying.
	Note          string     `json:"note,omitempty"`
	LastCheckedAt *time.Time `json:"last_checked_at"`
}

// recordTTL is what we ask for: long enough to be cached, short enough that a
// correction is seen within the hour.
const recordTTL = 3600

// rdata is the record's value as in a zone file.
func (r *Record) rdata() string {
	switch {
	case r.Type == "TXT":
		return quote(r.Value)
	case r.Type == "A" || r.Type == "AAAA":
		return r.Value
	case r.Priority != nil:
		return strconv.Itoa(*r.Priority) + " " + r.Value + "."
	}
	return r.Value + "."
}

// quote writes a TXT value as a zone file has it.
func quote(text string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	parts := mailauth.SplitTXT(text)
	for i, p := range parts {
		parts[i] = `"` + escape.Replace(p) + `"`
	}
	return strings.Join(parts, " ")
}

// Values that are the same for all.
const (
	ownershipPrefix = "mailstead-verification="
	dmarcValue      = "v=DMARC1; p=none"
	mxPreference    = 10
)

// spfName is where our hosts are listed for SPF.
func (d *Domains) spfName() string { return spfOf(d.Host) }

// asked lists the records that a domain is asked for, required ones first.
func (d *Domains) asked(c *claim, keys []key) []Record {
	var all []Record
	required := true
	add := func(kind, typ, label, value string, priority ...int) {
		r := Record{
			Kind: kind, Type: typ, Name: label + c.name, Value: value, TTL: recordTTL,
			Required: required, Status: RecordPending, Observed: []string{},
		}
		if len(priority) > 0 {
			r.Priority = &priority[0]
		}
		all = append(all, r)
	}
	add(Ownership, "TXT", "_mailstead.", ownershipPrefix+c.token)
	add(MX, "MX", "", d.Host, mxPreference)
	add(SPF, "TXT", "", "v=spf1 include:"+d.spfName()+" ~all")
	for i := range keys {
		if keys[i].state == KeyActive {
			add(DKIM, "TXT", keys[i].label(), keys[i].record)
		}
	}
	add(DMARC, "TXT", "_dmarc.", dmarcValue)
	required = false
	for i := range keys {
		if note := keys[i].note(); note != "" {
			add(DKIM, "TXT", keys[i].label(), keys[i].record)
			all[len(all)-1].Note = note
		}
	}
	add(Autoconfig, "CNAME", "autoconfig.", d.Host)
	add(Autodiscover, "CNAME", "autodiscover.", d.Host)
	srv := func(label string, port uint16) {
		add(SRV, "SRV", label, fmt.Sprintf("1 %d %s", port, d.Host), 0)
	}
	srv("_imaps._tcp.", d.Ports.IMAPS)
	srv("_submissions._tcp.", d.Ports.Submissions)
	srv("_submission._tcp.", d.Ports.Submission)
	add(MTASTS, "TXT", "_mta-sts.", "v=STSv1; id="+d.stsID(c.sts))
	add(MTASTS, "CNAME", "mta-sts.", d.Host)
	add(TLSRPT, "TXT", "_smtp._tls.", "v=TLSRPTv1; rua=mailto:postmaster@"+c.name)
	return all
}

// sighting is what is stored about a record.
type sighting struct {
	Asked    string    `json:"asked"` // the value asked for at that time
	Status   string    `json:"status"`
	Observed []string  `json:"observed,omitempty"`
	Error    string    `json:"error,omitempty"`
	At       time.Time `json:"at"`
}

// sightings are those of a domain, by the record's place.
type sightings map[string]sighting

func (r *Record) place() string { return r.Type + " " + r.Name }

func readSightings(text string) (sightings, error) {
	s := sightings{}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("reading what was seen of a domain's records: %w", err)
	}
	return s, nil
}

// withSeen adds to records what was seen of them. A record that is asked for
// with another value than at the time counts as not looked for yet.
func (d *Domains) withSeen(records []Record, seen sightings) []Record {
	for i := range records {
		r := &records[i]
		s, ok := seen[r.place()]
		if !ok || s.Asked != r.Value {
			continue
		}
		r.Status, r.Error, r.LastCheckedAt = s.Status, s.Error, &s.At
		if s.Observed != nil {
			r.Observed = s.Observed
		}
	}
	return records
}

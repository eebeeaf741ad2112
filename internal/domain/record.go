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
	KindMX           = "MX"
	KindSPF          = "SPF"
	KindDKIM         = "DKIM"
	KindDMARC        = "DMARC"
	KindOwnership    = "OWNERSHIP"
	KindAutoconfig   = "AUTOCONFIG"
	KindAutodiscover = "AUTODISCOVER"
	KindSRV          = "SRV"
	KindMTASTS       = "MTA-STS"
	KindTLSRPT       = "TLS-RPT"
)

// The states of a record. They describe the last answer of the DNS. RecordTemporaryFailure means
// that there was none; the domain's status then still follows the previous answer.
const (
	RecordPending          = "pending" // not checked yet
	RecordVerified         = "verified"
	RecordFailed           = "failed"
	RecordTemporaryFailure = "temporary_failure"
)

// Record is a DNS record that a domain must or should publish, with what was seen of it.
type Record struct {
	Kind     string `json:"kind"`
	Type     string `json:"type"`
	Name     string `json:"name"`  // fully qualified, without a trailing dot
	Value    string `json:"value"` // TXT unquoted and as one string; SRV as "weight port target"
	Priority *int   `json:"priority,omitempty"`
	TTL      int    `json:"ttl"` // seconds
	// Required records must be seen to verify a domain; the others are recommended.
	Required bool     `json:"required"`
	Status   string   `json:"status"`
	Observed []string `json:"observed"` // other values found in the DNS
	// Error says how to fix it; a verified record may have a warning.
	Error string `json:"error"`
	// Note explains the purpose, and for how long it is needed, where necessary.
	Note          string     `json:"note,omitempty"`
	LastCheckedAt *time.Time `json:"last_checked_at"`
}

// recordTTL is the recommended TTL: long enough for caches, short enough that a correction is seen
// within the hour.
const recordTTL = 3600

// rdata returns the record's value in zone-file format.
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

// quote returns a TXT value in zone-file format.
func quote(text string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	parts := mailauth.SplitTXT(text)
	for i, p := range parts {
		parts[i] = `"` + escape.Replace(p) + `"`
	}
	return strings.Join(parts, " ")
}

// Values that are the same for all domains.
const (
	ownershipPrefix = "mailstead-verification="
	dmarcValue      = "v=DMARC1; p=none"
	mxPreference    = 10
)

// spfName returns the name of the SPF record that lists our hosts.
func (d *Domains) spfName() string { return spfHost(d.Host) }

// expectedRecords lists the records that a domain should publish, required ones first.
func (d *Domains) expectedRecords(c *claim, keys []key) []Record {
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
	add(KindOwnership, "TXT", "_mailstead.", ownershipPrefix+c.token)
	add(KindMX, "MX", "", d.Host, mxPreference)
	add(KindSPF, "TXT", "", "v=spf1 include:"+d.spfName()+" ~all")
	for i := range keys {
		if keys[i].state == KeyActive {
			add(KindDKIM, "TXT", keys[i].recordLabel(), keys[i].record)
		}
	}
	add(KindDMARC, "TXT", "_dmarc.", dmarcValue)
	required = false
	for i := range keys {
		if note := keys[i].recordNote(); note != "" {
			add(KindDKIM, "TXT", keys[i].recordLabel(), keys[i].record)
			all[len(all)-1].Note = note
		}
	}
	add(KindAutoconfig, "CNAME", "autoconfig.", d.Host)
	add(KindAutodiscover, "CNAME", "autodiscover.", d.Host)
	srv := func(label string, port uint16) {
		add(KindSRV, "SRV", label, fmt.Sprintf("1 %d %s", port, d.Host), 0)
	}
	srv("_imaps._tcp.", d.Ports.IMAPS)
	srv("_submissions._tcp.", d.Ports.Submissions)
	srv("_submission._tcp.", d.Ports.Submission)
	add(KindMTASTS, "TXT", "_mta-sts.", "v=STSv1; id="+d.stsID(c.sts))
	add(KindMTASTS, "CNAME", "mta-sts.", d.Host)
	add(KindTLSRPT, "TXT", "_smtp._tls.", "v=TLSRPTv1; rua=mailto:postmaster@"+c.name)
	return all
}

// observation is the stored result of checking a record.
type observation struct {
	Expected string    `json:"asked"` // value expected at that time
	Status   string    `json:"status"`
	Observed []string  `json:"observed,omitempty"`
	Error    string    `json:"error,omitempty"`
	At       time.Time `json:"at"`
}

// observations are a domain's results, by Record.key.
type observations map[string]observation

func (r *Record) key() string { return r.Type + " " + r.Name }

func parseObservations(text string) (observations, error) {
	s := observations{}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("reading what was seen of a domain's records: %w", err)
	}
	return s, nil
}

// withObservations adds the stored results to records. A record whose expected value has changed
// since then counts as not checked yet.
func (d *Domains) withObservations(records []Record, seen observations) []Record {
	for i := range records {
		r := &records[i]
		s, ok := seen[r.key()]
		if !ok || s.Expected != r.Value {
			continue
		}
		r.Status, r.Error, r.LastCheckedAt = s.Status, s.Error, &s.At
		if s.Observed != nil {
			r.Observed = s.Observed
		}
	}
	return records
}

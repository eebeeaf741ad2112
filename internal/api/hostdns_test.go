// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// An operator key reads the DNS records of the service; a customer's key can't.
func TestHostDNS(t *testing.T) {
	const host = "mail.service.example.com"
	addr, zone := dnstest.Start(t, host+". A 127.0.0.1")
	zone.ServFail("_dmarc." + host)
	s := servertest.Start(t, servertest.Hostname(host, addr), servertest.SmartHost())
	_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
	if err != nil {
		t.Fatal(err)
	}
	status(t, "a customer", s.API("GET", "/operator/dns", nil), 403)
	answer := s.APIWithKey(operator, "GET", "/operator/dns", nil)
	status(t, "an operator", answer, 200)
	var got struct {
		Host    string
		Failed  int
		Records []struct {
			Kind, Type, Name, Value, Status string
			Required                        bool
			Error, Note                     *string
		}
	}
	answer.Decode(t, &got)
	want := []struct{ kind, name, value, status string }{
		{"ADDRESS", host, "127.0.0.1", "verified"},
		{"SPF", "spf." + host, "v=spf1 include:SPF-NAME-OF-THE-RELAY -all", "failed"}, // the smart host sends
		{"SPF", host, "v=spf1 include:spf." + host + " -all", "failed"},
		{"MX", "bounces." + host, host, "failed"},
		{"SPF", "bounces." + host, "v=spf1 include:spf." + host + " -all", "failed"},
		{"DKIM", "", "", "failed"},
		{"DMARC", "_dmarc." + host, "v=DMARC1; p=none", "temporary_failure"},
		{"MX", host, host, "failed"},
	}
	if got.Host != host || got.Failed != 5 || len(got.Records) != len(want) {
		t.Fatalf("%s", answer.Body)
	}
	for i, w := range want {
		r := got.Records[i]
		if r.Kind != w.kind || w.name != "" && (r.Name != w.name || r.Value != w.value) || r.Status != w.status ||
			r.Required != (i < len(want)-1) || (r.Error == nil) != (r.Status == "verified") || r.Note == nil {
			t.Errorf("%+v, want %+v", r, w)
		}
	}
}

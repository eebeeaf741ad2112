// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"html"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// An operator sees the service's own DNS records and their status: missing, published, wrong, or
// unknown while the DNS doesn't respond.
func TestHostRecords(t *testing.T) {
	const host = "mail.service.example.com"
	addr, zone := dnstest.Start(t)
	s := servertest.Start(t, servertest.Hostname(host, addr))
	if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: "ops@else.example", Name: "Ops", Password: colleague}, account.OperatorAccount); err != nil {
		t.Fatal(err)
	}
	v := newVisitor(t, s)
	v.signIn("ops@else.example", colleague)
	shows := func(want ...string) (page string) {
		t.Helper()
		servertest.Eventually(t, func() string { // the last result is cached for a few seconds
			status, _, text := v.ask("GET", "/operator/dns", nil)
			if status != 200 {
				t.Fatalf("%d\n%s", status, text)
			}
			page = html.UnescapeString(text)
			for _, w := range want {
				if !strings.Contains(page, w) {
					return "the page lacks " + w + "\n" + page
				}
			}
			return ""
		})
		return page
	}

	key, err := s.Domains.HostDKIMKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page := shows("7 required records are missing or wrong.", `href="/operator/dns" aria-current="page"`,
		`data-copy="`+host+`"`, `data-copy="127.0.0.1"`, `data-copy="spf.`+host+`"`, `data-copy="v=spf1 ip4:127.0.0.1 -all"`,
		`data-copy="`+key.Selector+"._domainkey."+host+`"`, "v=DKIM1; k=rsa; p=", `<span class="badge bad">failed</span>`,
		"No MX record was found at bounces."+host, "Large providers expect a policy of every sender.")
	if required, optional := strings.Index(page, "Required records"), strings.Index(page, "Optional records"); required < 0 || optional < required {
		t.Errorf("required records are at %d, optional ones at %d", required, optional)
	}

	status, _, text := v.ask("GET", "/operator/dns/zone", nil)
	if status != 200 {
		t.Fatalf("%d\n%s", status, text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ';' {
			zone.Add(line)
		}
	}
	shows("All 7 required records are published.", `<span class="badge good">verified</span>`)

	zone.Set("bounces."+host, "MX 10 other.example.net.", `TXT "v=spf1 include:spf.`+host+` -all"`)
	shows("1 required record is missing or wrong.", "other.example.net")

	zone.ServFail("spf." + host)
	shows("1 required record is missing or wrong. 3 required records could not be checked, because the DNS gave no answer.",
		`data-copy="v=spf1 ip4:127.0.0.1 -all"`, `<span class="badge warn">temporary failure</span>`, "so this record could not be checked")
	if status, _, again := v.ask("GET", "/operator/dns/zone", nil); status != 200 || again != text {
		t.Errorf("%d, a zone file without an answer of the DNS:\n%s\nand with one:\n%s", status, again, text)
	}

	customer := newVisitor(t, s)
	customer.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	for _, path := range []string{"/operator/dns", "/operator/dns/zone"} {
		if status, _, text := customer.ask("GET", path, nil); status != 404 || strings.Contains(text, domain.RecordFailed) {
			t.Errorf("a customer at %s: %d\n%s", path, status, text)
		}
	}
}

// The page is accessible, also with errors and with long values on a phone, and is in the
// navigation.
func TestHostRecordsInBrowser(t *testing.T) {
	const host = "mail.service.example.com"
	addr, zone := dnstest.Start(t, host+". A 127.0.0.1", host+`. TXT "v=spf1 include:spf.`+host+` -all"`, "spf."+host+`. TXT "v=spf1 ip4:192.0.2.1 -all"`)
	zone.ServFail("_dmarc." + host)
	s := servertest.Start(t, servertest.Hostname(host, addr))
	b := browse(t, s)
	b.signIn(s)
	b.open("/profile")
	b.press("/profile/accounts/" + account.OperatorAccount.String())
	b.reads("The service")
	b.open(script[string](b, `[...document.querySelectorAll("nav a")].find(a => a.textContent.trim() === "DNS records").getAttribute("href")`))
	b.reads("5 required records are missing or wrong. 1 required record could not be checked")
	b.looks("operator-dns")
}

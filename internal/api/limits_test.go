// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// metered is a service whose limits use a stopped clock.
type metered struct {
	*servertest.Server
	t       *testing.T
	account db.ID
	now     *atomic.Int64 // in microseconds
}

// eachMetered starts the clock at half past ten.
func eachMetered(t *testing.T, f func(t *testing.T, m *metered)) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		now := &atomic.Int64{}
		now.Store(time.Date(2026, 5, 4, 10, 30, 0, 0, time.UTC).UnixMicro())
		s := servertest.Start(t, servertest.Database(url), servertest.Clock(func() time.Time { return time.UnixMicro(now.Load()) }))
		f(t, &metered{s, t, demo(t, s), now})
	})
}

func (m *metered) pass(d time.Duration) { m.now.Add(d.Microseconds()) }

func (m *metered) rates(r quota.Rates) { m.set(quota.AccountLimits{Rates: r}) }

func (m *metered) set(s quota.AccountLimits) {
	m.t.Helper()
	if err := m.Limits.SetOverrides(m.t.Context(), m.account, s); err != nil {
		m.t.Fatal(err)
	}
}

// send sends a message to simulator addresses, one for each name.
func (m *metered) send(key string, to ...string) servertest.Response {
	m.t.Helper()
	if len(to) == 0 {
		to = []string{"delivered"}
	}
	for i, name := range to {
		to[i] = name + "@simulator.test"
	}
	return m.APIWithKey(key, "POST", "/outbound/send", mail(object{"to": to}))
}

func (m *metered) sends(n int) {
	m.t.Helper()
	for range n {
		status(m.t, "sending", m.send(m.Dev.APIKey), 202)
	}
}

// used returns a limit as GET /limits reports it: used/limit, and the remaining number.
func (m *metered) used(key, name string) string {
	m.t.Helper()
	u := into(m.t, m.APIWithKey(key, "GET", "/limits", nil))[name].(object)
	return fmt.Sprintf("%v/%v, %v until %v", u["used"], u["limit"], u["remaining"], u["resets_at"])
}

// tells fails the test unless a response has these limit headers.
func tells(t *testing.T, what string, a servertest.Response, policy, left string) {
	t.Helper()
	if got := strings.Join(a.Header.Values("RateLimit-Policy"), "|"); got != policy {
		t.Errorf("%s: RateLimit-Policy: %s, want %s", what, got, policy)
	}
	if got := strings.Join(a.Header.Values("RateLimit"), "|"); got != left {
		t.Errorf("%s: RateLimit: %s, want %s", what, got, left)
	}
}

// limited fails the test unless a request exceeds a limit and may be retried after the given
// seconds.
func limited(t *testing.T, what string, a servertest.Response, code string, seconds int) {
	t.Helper()
	refused(t, what, a, 429, code)
	if got := a.Header.Get("Retry-After"); got != fmt.Sprint(seconds) {
		t.Errorf("%s: Retry-After: %q, want %d", what, got, seconds)
	}
}

// Every response has the request limit, and responses to sends the send limit. The remaining number
// goes down with use and up with time.
func TestLimitHeaders(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		m.rates(quota.Rates{RequestsPerSecond: 2, Burst: 5, SendsPerHour: 10, SendsPerDay: 20, RecipientsPerDay: 30})
		const requests = `"requests";q=5;w=3`
		const sends = requests + `, "sends_per_hour";q=10;w=3600, "sends_per_day";q=20;w=86400, "recipients_per_day";q=30;w=86400`
		tells(t, "a list", m.API("GET", "/domains", nil), requests, `"requests";r=4;t=1`)
		a := m.send(m.Dev.APIKey, "delivered", "delivered+2")
		status(t, "sending", a, 202)
		tells(t, "a send", a, sends, `"requests";r=3;t=1, "sends_per_hour";r=9;t=1800, "sends_per_day";r=19;t=48600, "recipients_per_day";r=28;t=48600`)
		a = m.API("POST", "/outbound/send", object{})
		status(t, "a wrong send", a, 422)
		tells(t, "a wrong send", a, sends, `"requests";r=2;t=1, "sends_per_hour";r=9;t=1800, "sends_per_day";r=19;t=48600, "recipients_per_day";r=28;t=48600`)
		tells(t, "what is not there", m.API("GET", "/domains/"+m.account.String(), nil), requests, `"requests";r=1;t=1`)
		_, weak := newKey(t, m.Server, object{"scopes": []string{"domains.read"}})
		for range 2 { // not counted itself
			a = m.APIWithKey(weak, "GET", "/mailboxes", nil)
			limited(t, "too much", a, "too_many_requests", 1)
			tells(t, "too much", a, requests, `"requests";r=0;t=1`)
		}
		status(t, "another account", m.APIWithKey(stranger(t, m.Server), "GET", "/domains", nil), 200)
		m.pass(time.Second)
		status(t, "not allowed", m.APIWithKey(weak, "GET", "/mailboxes", nil), 403)
		tells(t, "a second later", m.API("GET", "/domains", nil), requests, `"requests";r=0;t=1`)
		limited(t, "then again", m.API("GET", "/domains", nil), "too_many_requests", 1)
		m.rates(quota.Rates{})
		tells(t, "no limits", m.API("GET", "/domains", nil), "", "")
		a = m.send(m.Dev.APIKey)
		status(t, "without limits", a, 202)
		tells(t, "a send without limits", a, "", "")
	})
}

// Only accepted messages count.
func TestSendLimit(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		m.rates(quota.Rates{SendsPerHour: 3})
		hour := func(used, left int) {
			t.Helper()
			want := fmt.Sprintf("%d/3, %d until 2026-05-04T11:00:00.000Z", used, left)
			if got := m.used(m.Dev.APIKey, "sends_per_hour"); got != want {
				t.Errorf("GET /limits tells %s, want %s", got, want)
			}
			if got := messages(t, m.Server); got != used {
				t.Errorf("there are %d messages, want %d", got, used)
			}
		}
		first := keyed(t, m.Server, "/send", "one", newReader(aSend))
		status(t, "the first", first, 202)
		for range 5 {
			status(t, "repeated", keyed(t, m.Server, "/send", "one", newReader(aSend)), 202)
			refused(t, "another body", keyed(t, m.Server, "/send", "one", newReader(aBatch)), 422, "idempotency_key_reused")
			status(t, "not valid", m.API("POST", "/outbound/send", mail(object{"to": []string{"nobody"}})), 422)
			refused(t, "as another", m.API("POST", "/outbound/send", mail(object{"from_email": "x@elsewhere.test"})), 403, "sender_not_allowed")
		}
		hour(1, 2)
		one := mail(object{"to": []string{"delivered@simulator.test"}})
		batch := func(partial bool, of ...object) servertest.Response {
			t.Helper()
			return m.API("POST", "/outbound/batch", object{"messages": of, "partial": partial})
		}
		limited(t, "a batch beyond what is left", batch(false, one, one, one), "sends_per_hour_exceeded", 1800)
		refused(t, "a batch beyond the limit", batch(false, one, one, one, one), 403, "over_sends_per_hour")
		hour(1, 2)
		a := batch(true, one, object{}, one, one)
		status(t, "in part", a, 202)
		var got []string
		for _, item := range into(t, a)["data"].([]any) {
			if e, ok := item.(object)["error"].(object); ok {
				got = append(got, fmt.Sprint(e["status"], " ", e["code"]))
			} else {
				got = append(got, item.(object)["status"].(string))
			}
		}
		if want := []string{"queued", "422 validation_failed", "queued", "429 sends_per_hour_exceeded"}; !slices.Equal(got, want) {
			t.Errorf("in part: %q, want %q", got, want)
		}
		hour(3, 0)
		a = m.send(m.Dev.APIKey)
		limited(t, "one more", a, "sends_per_hour_exceeded", 1800)
		tells(t, "one more", a, `"sends_per_hour";q=3;w=3600`, `"sends_per_hour";r=0;t=1800`)
		limited(t, "a batch of which nothing is left", batch(true, one, one), "sends_per_hour_exceeded", 1800)
		again := keyed(t, m.Server, "/send", "one", newReader(aSend))
		if again.Status != 202 || string(again.Body) != string(first.Body) {
			t.Errorf("repeated when nothing is left: %d %s", again.Status, again.Body)
		}
		limited(t, "with a key of its own", keyed(t, m.Server, "/send", "two", newReader(aSend)), "sends_per_hour_exceeded", 1800)
		hour(3, 0)
		if got := m.used(stranger(t, m.Server), "sends_per_hour"); !strings.HasPrefix(got, "0/1e+06, 1e+06 ") {
			t.Errorf("another account: %s", got)
		}
		m.pass(30*time.Minute - time.Second)
		limited(t, "a second before", m.send(m.Dev.APIKey), "sends_per_hour_exceeded", 1)
		m.pass(time.Second)
		status(t, "the same request in the next hour", keyed(t, m.Server, "/send", "two", newReader(aSend)), 202)
	})
}

func TestRecipientLimit(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		m.rates(quota.Rates{RecipientsPerDay: 5})
		status(t, "three, one of them twice", m.send(m.Dev.APIKey, "delivered", "delivered+2", "delivered+3", "DELIVERED+3"), 202)
		limited(t, "three more", m.send(m.Dev.APIKey, "delivered", "delivered+2", "delivered+3"), "recipients_per_day_exceeded", 48600)
		refused(t, "more than ever", m.send(m.Dev.APIKey, "delivered", "bounced", "deferred", "a", "b", "c"), 403, "over_recipients_per_day")
		later := m.API("POST", "/outbound/send", mail(object{"to": []string{"a@simulator.test"}, "cc": []string{"b@simulator.test"}, "send_at": time.Now().Add(48 * time.Hour)}))
		status(t, "two more, the day after tomorrow", later, 202) // counts when accepted, although it is not sent yet
		status(t, "not sending it", m.API("POST", "/outbound/messages/"+into(t, later)["id"].(string)+"/cancel", nil), 200)
		limited(t, "one more", m.send(m.Dev.APIKey), "recipients_per_day_exceeded", 48600)
		if got, want := m.used(m.Dev.APIKey, "recipients_per_day"), "5/5, 0 until 2026-05-05T00:00:00.000Z"; got != want {
			t.Errorf("GET /limits tells %s, want %s", got, want)
		}
	})
}

// warnings returns the data of all rate_limit_warning events, oldest first.
func (m *metered) warnings() (all []string) {
	m.t.Helper()
	for _, e := range into(m.t, m.API("GET", "/events?type=rate_limit_warning&limit=100", nil))["data"].([]any) {
		d := e.(object)["data"].(object)
		all = append(all, fmt.Sprint(d["name"], " ", d["window"], " ", d["used"], "/", d["limit"], " ", d["resets_at"], " ", d["api_key_id"]))
	}
	slices.Reverse(all)
	return all
}

// warned waits for these warnings.
func (m *metered) warned(want ...string) {
	m.t.Helper()
	sub := m.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(m.account)})
	defer sub.Close()
	for {
		got := m.warnings()
		if slices.Equal(got, want) {
			return
		}
		if len(got) >= len(want) || !slices.Equal(got, want[:len(got)]) {
			m.t.Fatalf("warned of %q, want %q", got, want)
		}
		select {
		case <-sub.C:
		case <-m.t.Context().Done():
			m.t.Fatalf("waited in vain for %q, got %q", want, got)
		}
	}
}

// noMore waits for an event after all warnings, and fails the test unless these are the only
// warnings.
func (m *metered) noMore(want ...string) {
	m.t.Helper()
	sub := m.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(m.account)})
	defer sub.Close()
	a := m.API("POST", "/mailboxes", object{"domain_id": m.Dev.Domain.ID, "local_part": "last", "password": "Aa1!aaaa"})
	status(m.t, "a mailbox", a, 201)
	for id := into(m.t, a)["id"].(string); !strings.Contains(string(m.API("GET", "/events?type=mailbox_created&limit=1", nil).Body), id); {
		select {
		case <-sub.C:
		case <-m.t.Context().Done():
			m.t.Fatal("waited in vain for the last event")
		}
	}
	m.warned(want...)
}

// The account gets a warning at 80 %, once per window.
func TestLimitWarning(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		m.rates(quota.Rates{SendsPerHour: 10, SendsPerDay: 15})
		m.sends(7)
		refused(t, "too many at once", m.API("POST", "/outbound/batch", object{"messages": slices.Repeat([]object{mail(nil)}, 4)}), 429, "sends_per_hour_exceeded")
		m.warned()
		m.sends(1)
		first := "sends_per_hour hour 8/10 2026-05-04T11:00:00.000Z <nil>"
		m.warned(first)
		m.sends(2)
		limited(t, "one more", m.send(m.Dev.APIKey), "sends_per_hour_exceeded", 1800)
		m.warned(first)
		m.pass(30 * time.Minute)
		m.sends(1)
		m.warned(first)
		m.sends(1)
		second := "sends_per_day day 12/15 2026-05-05T00:00:00.000Z <nil>"
		m.warned(first, second)
		m.sends(3)
		limited(t, "one more today", m.send(m.Dev.APIKey), "sends_per_day_exceeded", 46800)
		m.warned(first, second)
		m.pass(24 * time.Hour)
		m.sends(9)
		m.noMore(first, second, "sends_per_hour hour 8/10 2026-05-05T12:00:00.000Z <nil>")
	})
}

// A key's own limits apply in addition to the account's.
func TestKeyLimits(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		m.rates(quota.Rates{RequestsPerSecond: 1000, Burst: 1000, SendsPerHour: 5})
		id, key := newKey(t, m.Server, object{"limits": object{"requests_per_second": 4, "sends_per_hour": 2, "recipients_per_day": 9}})
		a := m.send(key, "delivered", "delivered+2")
		status(t, "the first", a, 202)
		tells(t, "the first", a, `"requests";q=1000;w=1, "key_requests";q=4;w=1, "sends_per_hour";q=5;w=3600, "key_sends_per_hour";q=2;w=3600, "key_recipients_per_day";q=9;w=86400`,
			`"requests";r=998;t=1, "key_requests";r=3;t=1, "sends_per_hour";r=4;t=1800, "key_sends_per_hour";r=1;t=1800, "key_recipients_per_day";r=7;t=48600`)
		status(t, "the second", m.send(key), 202)
		limited(t, "the third", m.send(key), "sends_per_hour_exceeded", 1800)
		m.warned("sends_per_hour hour 2/2 2026-05-04T11:00:00.000Z " + id)
		own := into(t, m.APIWithKey(key, "GET", "/limits", nil))["api_key"].(object)
		hour := own["sends_per_hour"].(object)
		if own["id"] != id || fmt.Sprint(hour["used"], hour["remaining"]) != "2 0" || fmt.Sprint(own["requests"]) != "map[burst:4 per_second:4]" ||
			own["sends_per_day"] != nil || fmt.Sprint(own["recipients_per_day"].(object)["used"]) != "3" {
			t.Errorf("GET /limits tells %v", own)
		}
		limited(t, "the fifth request", m.APIWithKey(key, "GET", "/limits", nil), "too_many_requests", 1)
		if got := into(t, m.API("GET", "/limits", nil))["api_key"]; got != nil {
			t.Errorf("a key without limits has %v", got)
		}
		m.pass(time.Second)
		m.sends(3)
		limited(t, "the account's sixth", m.send(m.Dev.APIKey), "sends_per_hour_exceeded", 1799)

		_, child := newKey(t, m.Server, object{})
		refused(t, "above the account", m.APIWithKey(child, "POST", "/api-keys", object{"name": "x", "limits": object{"sends_per_hour": 6, "burst": 2000}}), 422, "validation_failed",
			"limits.burst over_account", "limits.sends_per_hour over_account")
		refused(t, "no limits", m.API("POST", "/api-keys", object{"name": "x", "limits": object{"sends_per_hour": 0, "sends_per_day": -1}}), 422, "validation_failed",
			"limits.sends_per_day out_of_range", "limits.sends_per_hour out_of_range")
		refused(t, "above its maker", m.APIWithKey(key, "POST", "/api-keys", object{"name": "x", "limits": object{"sends_per_hour": 3}}), 403, "limits_exceeded")
		a = m.APIWithKey(key, "POST", "/api-keys", object{"name": "x"})
		status(t, "made by a key with limits", a, 201)
		if got := fmt.Sprint(into(t, a)["limits"]); got != "map[burst:<nil> recipients_per_day:9 requests_per_second:4 sends_per_day:<nil> sends_per_hour:2]" {
			t.Errorf("it got the limits %s", got)
		}
		_, slow := newKey(t, m.Server, object{"limits": object{"requests_per_second": 4, "burst": 2}})
		for body, want := range map[string]string{
			`{"name":"x"}`: "map[burst:2 recipients_per_day:<nil> requests_per_second:4 sends_per_day:<nil> sends_per_hour:<nil>]",
			`{"name":"x","limits":{"requests_per_second":3}}`: "map[burst:2 recipients_per_day:<nil> requests_per_second:3 sends_per_day:<nil> sends_per_hour:<nil>]",
		} {
			a := m.APIWithKey(slow, "POST", "/api-keys", body)
			status(t, "made by a slow key", a, 201)
			if got := fmt.Sprint(into(t, a)["limits"]); got != want {
				t.Errorf("%s got the limits %s, want %s", body, got, want)
			}
		}
	})
}

// Operators set an account's limits through the API.
func TestOperatorLimits(t *testing.T) {
	eachMetered(t, func(t *testing.T, m *metered) {
		_, operator, err := m.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "operator"})
		if err != nil {
			t.Fatal(err)
		}
		path := "/operator/accounts/" + m.account.String() + "/limits"
		figures := func(what string, a servertest.Response, set, holds string) {
			t.Helper()
			status(t, what, a, 200)
			o := into(t, a)
			if o["account_id"] != m.account.String() || fmt.Sprint(o["set"]) != set || fmt.Sprint(o["limits"]) != holds {
				t.Errorf("%s: got\n%v\n%v, want\n%s\n%s", what, o["set"], o["limits"], set, holds)
			}
		}
		const nothing = "map[burst:<nil> recipients_per_day:<nil> requests_per_second:<nil> sends_per_day:<nil> sends_per_hour:<nil> storage_mb:<nil>]"
		const all = "map[burst:20000 recipients_per_day:2e+07 requests_per_second:2000 sends_per_day:1e+07 sends_per_hour:1e+06 storage_mb:1.048576e+07]"
		figures("at first", m.APIWithKey(operator, "GET", path, nil), nothing, all)
		m.sends(2)
		set := object{"requests_per_second": 50, "sends_per_hour": 3, "sends_per_day": 0}
		const some = "map[burst:<nil> recipients_per_day:<nil> requests_per_second:50 sends_per_day:0 sends_per_hour:3 storage_mb:<nil>]"
		const held = "map[burst:0 recipients_per_day:2e+07 requests_per_second:50 sends_per_day:0 sends_per_hour:3 storage_mb:1.048576e+07]"
		figures("set", m.APIWithKey(operator, "PUT", path, set), some, held)
		m.sends(1) // earlier use still counts
		limited(t, "beyond", m.send(m.Dev.APIKey), "sends_per_hour_exceeded", 1800)
		refused(t, "wrong", m.APIWithKey(operator, "PUT", path, object{"sends_per_hour": -1, "burst": 1_000_000_000_001, "storage_mb": -2}), 422, "validation_failed",
			"sends_per_hour out_of_range", "storage_mb out_of_range", "burst out_of_range")
		refused(t, "too much", m.APIWithKey(operator, "PUT", path, object{"burst": 1_000_000_000_001}), 422, "validation_failed", "burst out_of_range")
		status(t, "not a number", m.APIWithKey(operator, "PUT", path, object{"sends_per_hour": "many"}), 422)
		status(t, "unknown", m.APIWithKey(operator, "PUT", path, object{"sends_per_minute": 1}), 422)
		figures("unchanged", m.APIWithKey(operator, "GET", path, nil), some, held)
		for _, method := range []string{"GET", "PUT"} {
			var body any
			if method == "PUT" {
				body = object{}
			}
			refused(t, "nobody", m.APIWithKey(operator, method, "/operator/accounts/"+m.Dev.Domain.ID.String()+"/limits", body), 404, "not_found")
			refused(t, "no id", m.APIWithKey(operator, method, "/operator/accounts/x/limits", body), 404, "not_found")
			refused(t, "a customer", m.API(method, path, body), 403, "missing_scope")
		}
		figures("reset", m.APIWithKey(operator, "PUT", path, object{}), nothing, all)
		m.sends(1)
	})
}

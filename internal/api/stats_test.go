// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Sent and received messages are counted, for the account and for its domains.
func TestStats(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		other := verified(t, s, s.Dev.APIKey, "other.test")
		for _, change := range []object{
			{"to": []string{"delivered@simulator.test", "bounced@simulator.test", "suppressed@simulator.test"}},
			{"to": []string{"bob@demo.test"}},
			{"from_email": "zoe@other.test", "tags": []string{"trial"}, "to": []string{"delivered@simulator.test", "complained@simulator.test"}},
		} {
			status(t, "sending", s.API("POST", "/outbound/send", mail(change)), 202)
		}
		totals := func(key, query string) string {
			a := s.APIWithKey(key, "GET", "/stats"+query, nil)
			status(t, query, a, 200)
			out := into(t, a)
			return fmt.Sprint(out["totals"])
		}
		const all = "map[accepted:6 bounce_rate:0.2 bounced:1 cancelled:0 complained:1 complaint_rate:0.25 deferred:0 delivered:4 failed:0 inbound:1 messages:3 suppressed:1 unsubscribed:0]"
		const others = "map[accepted:2 bounce_rate:0 bounced:0 cancelled:0 complained:1 complaint_rate:0.5 deferred:0 delivered:2 failed:0 inbound:0 messages:1 suppressed:0 unsubscribed:0]"
		const none = "map[accepted:0 bounce_rate:<nil> bounced:0 cancelled:0 complained:0 complaint_rate:<nil> deferred:0 delivered:0 failed:0 inbound:0 messages:0 suppressed:0 unsubscribed:0]"
		servertest.Eventually(t, func() string {
			if got := totals(s.Dev.APIKey, ""); got != all {
				return got
			}
			return ""
		})
		servertest.Eventually(t, func() string {
			if got := totals(s.Dev.APIKey, "?tag=trial"); got != others {
				return got
			}
			return ""
		})
		restricted := into(t, s.API("POST", "/api-keys", object{"name": "one", "domain": "other.test", "scopes": []string{"stats.read"}}))["key"].(string)
		foreign := stranger(t, s)
		for _, c := range []struct{ key, query, want string }{
			{s.Dev.APIKey, "?by=hour", all},
			{s.Dev.APIKey, "?domain_id=" + other, others},
			{s.Dev.APIKey, "?by=day&starts_at=2025-01-01T00:00:00Z&ends_at=2026-01-01T00:00:00Z", none},
			{restricted, "", others},
			{restricted, "?tag=trial", others},
			{s.Dev.APIKey, "?tag=Trial", none},
			{s.Dev.APIKey, "?tag=trial&domain_id=" + s.Dev.Domain.ID.String(), none},
			{foreign, "?tag=trial", none},
			{restricted, "?domain_id=" + other, others},
			{foreign, "", none},
			{foreign, "?domain_id=" + other, none},
		} {
			if got := totals(c.key, c.query); got != c.want {
				t.Errorf("%s: got %s, want %s", c.query, got, c.want)
			}
		}

		a := into(t, s.API("GET", "/stats?by=hour&starts_at=2025-12-31T22:59:59Z&ends_at="+time.Now().UTC().Format(time.RFC3339), nil))
		if a["code"] != "validation_failed" {
			t.Errorf("too long, and too old: %v", a)
		}
		from := time.Now().UTC().Add(-50 * time.Hour).Truncate(time.Hour)
		a = into(t, s.API("GET", "/stats?by=hour&starts_at="+from.Add(10*time.Minute).Format(time.RFC3339)+"&ends_at="+from.Add(2*time.Hour).Format(time.RFC3339), nil))
		data, _ := a["data"].([]any)
		if len(data) != 2 || data[0].(map[string]any)["period"] != apijson.FormatTime(from) || a["starts_at"] != apijson.FormatTime(from) || a["ends_at"] != apijson.FormatTime(from.Add(2*time.Hour)) || a["by"] != "hour" {
			t.Errorf("two hours are %v", a)
		}
		to := time.Now().UTC()
		if days, _ := into(t, s.API("GET", "/stats?ends_at="+to.Format(time.RFC3339Nano), nil))["data"].([]any); len(days) != 30 || days[29].(map[string]any)["period"] != to.Format("2006-01-02")+"T00:00:00.000Z" {
			t.Errorf("%d days: %v", len(days), days)
		}

		refused(t, "an old tag", s.API("GET", "/stats?tag=trial&starts_at=2020-01-01T00:00:00Z&ends_at=2020-02-01T00:00:00Z", nil), 422, "validation_failed", "starts_at too_old")
		refused(t, "no tag", s.API("GET", "/stats?tag=a+b", nil), 422, "validation_failed", "tag invalid_tag")
		refused(t, "an unknown period", s.API("GET", "/stats?by=week", nil), 422, "validation_failed", "by unknown_value")
		refused(t, "all that is wrong", s.API("GET", "/stats?starts_at=today&ends_at=2026-01-01&domain_id=x", nil), 422, "validation_failed",
			"ends_at invalid_time", "starts_at invalid_time", "domain_id not_found")
		refused(t, "nothing between", s.API("GET", "/stats?starts_at=2026-01-02T00:00:00Z&ends_at=2026-01-01T00:00:00Z", nil), 422, "validation_failed", "starts_at invalid_range")
		refused(t, "too many", s.API("GET", "/stats?starts_at=0001-01-01T00:00:00Z&ends_at=9998-12-31T00:00:00Z", nil), 422, "validation_failed", "starts_at too_many_periods")
		for _, beyond := range []string{"ends_at=9999-12-31T23:59:59Z", "ends_at=0000-01-01T00:00:00Z", "ends_at=9998-12-31T23:59:59-12:00"} {
			refused(t, beyond, s.API("GET", "/stats?"+beyond, nil), 422, "validation_failed", "ends_at out_of_range")
		}
		refused(t, "too old", s.API("GET", "/stats?by=hour&starts_at=2025-01-01T00:00:00Z&ends_at=2025-01-02T00:00:00Z", nil), 422, "validation_failed", "starts_at too_old")
		refused(t, "another's domain", s.APIWithKey(restricted, "GET", "/stats?domain_id="+s.Dev.Domain.ID.String(), nil), 422, "validation_failed", "domain_id not_found")
		unscoped := into(t, s.API("POST", "/api-keys", object{"name": "none", "scopes": []string{"events.read"}}))["key"].(string)
		refused(t, "without the scope", s.APIWithKey(unscoped, "GET", "/stats", nil), 403, "missing_scope")
	})
}

// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A filter with several values lists what one of them would, in both orders and by pages.
func TestFiltersWithSeveralValues(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, box := s.Dev.Domain.ID.String(), s.Dev.Mailboxes[0].ID.String()
		second := into(t, s.API("POST", "/domains", object{"name": "second.test"}))["id"].(string)
		for n := range 5 {
			status(t, "a suppression", s.API("POST", "/suppressions", object{"email": fmt.Sprintf("x%d@example.org", n), "reason": []string{"manual", "bounce", "complaint"}[n%3]}), 201)
			status(t, "a message", s.API("POST", "/outbound/send", mail(object{"to": []string{[]string{"delivered", "bounced", "suppressed"}[n%3] + fmt.Sprintf("+%d@simulator.test", n)}})), 202)
			status(t, "a mailbox", s.API("POST", "/mailboxes", object{"domain_id": demo, "local_part": fmt.Sprint("m", n), "password": "Aa1!aaaa"}), 201)
		}
		servertest.Eventually(t, func() string {
			if got := ids(t, s.API("GET", "/outbound/messages?status=delivered,bounced", nil)); len(got) < 4 {
				return fmt.Sprint(got)
			}
			bounced, made := ids(t, s.API("GET", "/events?type=bounce", nil)), ids(t, s.API("GET", "/events?type=mailbox_created", nil))
			if len(bounced) < 2 || len(made) < 5 {
				return fmt.Sprint(bounced, made)
			}
			return ""
		})
		for path, filter := range map[string]struct {
			name   string
			values []string
			least  int
		}{
			"/suppressions":      {"reason", []string{"manual", "bounce"}, 4},
			"/outbound/messages": {"status", []string{"delivered", "bounced"}, 4},
			"/mailboxes":         {"domain_id", []string{demo, second}, 5},
			"/events":            {"type", []string{"bounce", "mailbox_created"}, 5},
		} {
			var single []string
			for _, v := range filter.values {
				single = append(single, ids(t, s.API("GET", path+"?limit=100&"+filter.name+"="+v, nil))...)
			}
			commas := path + "?" + filter.name + "=" + strings.Join(filter.values, ",") + "," + filter.values[0]
			repeated := path + "?" + filter.name + "=" + strings.Join(filter.values, "&"+filter.name+"=")
			down := ids(t, s.API("GET", commas+"&limit=100", nil))
			up := ids(t, s.API("GET", repeated+"&limit=100&order=asc", nil))
			slices.Reverse(up)
			if len(down) < filter.least || !slices.Equal(down, up) {
				t.Errorf("%s: down %v, up %v", path, down, up)
			}
			slices.Sort(single)
			sorted := slices.Sorted(slices.Values(down))
			if !slices.Equal(single, sorted) {
				t.Errorf("%s: single %v, several %v", path, single, sorted)
			}
			for _, order := range []string{"asc", "desc"} {
				testListOrder(t, path, order, map[string][]string{"asc": reversed(down), "desc": down}[order], func(query string) servertest.Response {
					return s.API("GET", commas+"&"+query, nil)
				})
			}
		}
		for query, want := range map[string]int{
			"recipient=delivered%2B0@simulator.test,bounced%2B1@simulator.test": 2, "recipient=simulator.test,example.org": 5,
			"from=alice@demo.test&from=bob@demo.test": 5, "from=bob@demo.test,carol@demo.test": 0, "domain_id=" + second + "," + demo: 5, "mailbox_id=" + box + "," + box: 0,
		} {
			if got := ids(t, s.API("GET", "/outbound/messages?"+query, nil)); len(got) != want {
				t.Errorf("%s: %v, want %d", query, got, want)
			}
		}
		refused(t, "no id", s.API("GET", "/mailboxes?domain_id="+demo+",x", nil), 422, "validation_failed", "domain_id not_found")
	})
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// Every parameter that takes a list takes ten values and no empty one.
func TestFilterLimits(t *testing.T) {
	s := servertest.Start(t)
	seen := 0
	for path, item := range document(t, s).Paths.Map() {
		if item.Get == nil || strings.Contains(path, "{") || strings.HasSuffix(path, "/stream") {
			continue
		}
		path = strings.TrimPrefix(path, "/api/v1")
		for _, ref := range item.Get.Parameters {
			p := ref.Value
			if p.In != "query" || !p.Schema.Value.Type.Includes(openapi3.TypeArray) {
				continue
			}
			seen++
			refused(t, p.Name, s.API("GET", path+"?"+p.Name+"="+strings.Repeat("x,", 10)+"x", nil), 422, "validation_failed", p.Name+" too_many_values")
			refused(t, p.Name, s.API("GET", path+"?"+p.Name+"=", nil), 422, "validation_failed", p.Name+" empty_value")
			if !strings.Contains(p.Description, "commas") {
				t.Errorf("%s: %s is described as %q", path, p.Name, p.Description)
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d parameters", seen)
	}
}

// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		password string
		want     []string
	}{
		{"Passw0rd!", nil},
		{"Pass w0rd", nil},
		{"Ünïcödé7-", nil},
		{"Пароль-12", nil},
		{"Aa1!" + strings.Repeat("x", 252), nil},
		{"", []string{"too_short", "missing_uppercase", "missing_lowercase", "missing_digit", "missing_special"}},
		{"Ab1!", []string{"too_short"}},
		{"Äb1!äö!", []string{"too_short"}}, // 7 characters in more bytes
		{"A\u0308b1!a\u0308o\u0308!", []string{"too_short"}},
		{"password", []string{"missing_uppercase", "missing_digit", "missing_special"}},
		{"PASSWORD1!", []string{"missing_lowercase"}},
		{"passw0rd!", []string{"missing_uppercase"}},
		{"Password!", []string{"missing_digit"}},
		{"Passw0rd1", []string{"missing_special"}},
		{"密碼密碼密碼1!", []string{"missing_uppercase", "missing_lowercase"}},
		{"Aa1!" + strings.Repeat("x", 253), []string{"too_long"}},
		{"Passw0rd!\r\n", []string{"invalid_character"}},
		{"Passw0rd!\x00", []string{"invalid_character"}},
		{"Passw0rd!\xff", []string{"invalid_character"}},
	} {
		f := CheckNewPassword("password", c.password)
		var got []string
		for _, field := range f {
			got = append(got, field.Code)
			if field.Path != "password" {
				t.Errorf("field %q", field.Path)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%.12q: %v, want %v", c.password, got, c.want)
		}
		if err := f.Err(); (err == nil) != (c.want == nil) || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%.12q: %v", c.password, err)
		}
	}
}

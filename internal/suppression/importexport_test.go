// SPDX-License-Identifier: Apache-2.0

package suppression_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
)

// whole returns the list of an account, one line per entry: address, reason, day, diagnostic.
func whole(t *testing.T, l *suppression.List, account db.ID) (all []string) {
	t.Helper()
	err := l.EachPage(t.Context(), account, func(entries []suppression.Entry) error {
		for _, e := range entries {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Address, e.Reason, e.CreatedAt.Format(time.DateOnly), e.Diagnostic)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Exports of other services are read as far as possible.
func TestImport(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want []string
		bad  []int // lines
	}{
		"addresses alone": {"a@x.test\nb@x.test\r\n\n\"c@x.test\"\n", []string{"a@x.test manual 2026-03-01", "b@x.test manual 2026-03-01", "c@x.test manual 2026-03-01"}, nil},
		"no header":       {"A@x.test,unsubscribe,2024-01-02T03:04:05Z\nB <b@x.test>,?\n", []string{"a@x.test unsubscribe 2024-01-02", "b@x.test manual 2026-03-01 ?"}, nil},
		"SES":             {"EmailAddress,Reason,LastUpdateTime\na@x.test,BOUNCE,2024-01-02T03:04:05.123000+00:00\nb@x.test,COMPLAINT,2024-01-02\n", []string{"a@x.test bounce 2024-01-02", "b@x.test complaint 2024-01-02"}, nil},
		"Postmark":        {"\xEF\xBB\xBF\"Email Address\",\"Suppression Reason\",Origin,\"Created At\"\na@x.test,HardBounce,Recipient,2024-01-02T03:04:05-05:00\nb@x.test,SpamComplaint,Recipient,\nc@x.test,ManualSuppression,Customer,x\n", []string{"a@x.test bounce 2024-01-02", "b@x.test complaint 2026-03-01", "c@x.test manual 2026-03-01"}, nil},
		"SendGrid":        {"email,created,status,reason\na@x.test,1704164645,5.1.1,\"550 5.1.1 no, such user\"\n", []string{"a@x.test manual 2024-01-02 550 5.1.1 no, such user"}, nil},
		"Mailgun":         {"address;code;error;created_at\na@x.test;550;\"no \"\"such\"\" user\";Tue, 02 Jan 2024 03:04:05 UTC\n", []string{`a@x.test manual 2024-01-02 no "such" user`}, nil},
		"tabs":            {"Recipient\tType\na@x.test\tSpam report\n", []string{"a@x.test complaint 2026-03-01"}, nil},
		"bad lines":       {"name,email\nx,a@x.test\ny,none\nz\n,delivered@simulator.test\n\"two\nlines\",b@x.test\nq,\n", []string{"a@x.test manual 2026-03-01", "b@x.test manual 2026-03-01"}, []int{3, 4, 5, 8}},
		"nonsense":        {"one\ntwo\n", nil, []int{1, 2}},
		"times":           {"a@x.test,,2999-01-01\nb@x.test,,0\nc@x.test,,99999999999999999999\nd@x.test,,0001-01-01\n", []string{"a@x.test manual 2026-03-01", "b@x.test manual 2026-03-01", "c@x.test manual 2026-03-01", "d@x.test manual 2026-03-01"}, nil},
		"hostile":         {"a@x.test,\x00\xff\n'=b@x.test\n\"open", []string{"a@x.test manual 2026-03-01 \uFFFD", "=b@x.test manual 2026-03-01"}, []int{3}},
		"empty":           {"", nil, nil},
		"blank":           {"\r\n,,\n \n", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				l := newList(t, d)
				account := d.NewID()
				done, err := l.Import(t.Context(), account, iotest.OneByteReader(strings.NewReader(c.file)), suppression.ReasonManual)
				if err != nil {
					t.Fatal(err)
				}
				var bad []int
				for _, f := range done.Faults {
					bad = append(bad, f.Line)
					if f.Code == "" || f.Message == "" {
						t.Errorf("%+v", f)
					}
				}
				if got := whole(t, l, account); !slices.Equal(got, c.want) || !slices.Equal(bad, c.bad) ||
					done.Added != len(c.want) || done.Rejected != len(c.bad) || done.Existing != 0 {
					t.Errorf("got %q, %v, %+v", got, bad, done)
				}
			})
		})
	}
}

// An import is limited, stores what it has read, and can be repeated.
func TestImportBounds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newList(t, d)
		account := d.NewID()
		var file strings.Builder
		for i := range suppression.MaxImportRows / 100 {
			fmt.Fprintf(&file, "user%d@x.test,bounce\n", i)
		}
		for _, want := range []suppression.ImportResult{{Added: 1000}, {Existing: 1000}} {
			done, err := l.Import(t.Context(), account, strings.NewReader(file.String()), suppression.ReasonManual)
			if err != nil || done.Added != want.Added || done.Existing != want.Existing {
				t.Errorf("%+v, %v", done, err)
			}
		}
		faults := strings.Repeat("none\n", 300)
		done, err := l.Import(t.Context(), account, strings.NewReader("email\n"+faults+"z@x.test\n"), suppression.ReasonUnsubscribe)
		if err != nil || done.Rejected != 300 || len(done.Faults) != 100 || done.Added != 1 {
			t.Errorf("%d %d %d, %v", done.Rejected, len(done.Faults), done.Added, err)
		}
		if e, err := l.Get(t.Context(), account, "z@x.test"); err != nil || e.Reason != suppression.ReasonUnsubscribe {
			t.Errorf("%+v, %v", e, err)
		}
		endless := io.MultiReader(strings.NewReader("y@x.test\n\""), forever('x'))
		if done, err = l.Import(t.Context(), account, endless, suppression.ReasonManual); !fault.Is(err, fault.Invalid) || done.Added != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err = l.Import(t.Context(), account, io.LimitReader(forever('\n'), 1<<20), suppression.ReasonManual); !fault.Is(err, fault.Invalid) || done.Added+done.Rejected != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err = l.Import(t.Context(), account, strings.NewReader(strings.Repeat("x\n", suppression.MaxImportRows+1)), suppression.ReasonManual); !fault.Is(err, fault.TooLarge) || done.Rejected != suppression.MaxImportRows {
			t.Errorf("%d, %v", done.Rejected, err)
		}
		broken := errors.New("the client left")
		if done, err = l.Import(t.Context(), account, io.MultiReader(strings.NewReader("v@x.test\n"), iotest.ErrReader(broken)), suppression.ReasonManual); !errors.Is(err, broken) || done.Added != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

type forever byte

func (f forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(f)
	}
	return len(p), nil
}

// An export contains nothing that a spreadsheet evaluates, and can be imported unchanged.
func TestExport(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newList(t, d)
		from, to := d.NewID(), d.NewID()
		for _, a := range []string{"=cmd@x.test", "+a@x.test", "-a@x.test", "'a@x.test", "'=a@x.test", `"a b"@x.test`, "bounced+x@simulator.test"} {
			mustAdd(t, l, suppression.Entry{Account: from, Address: a, Reason: suppression.ReasonBounce, Message: from, Diagnostic: "=1+1\n\"x\""})
		}
		for i := range 1200 {
			mustAdd(t, l, suppression.Entry{Account: from, Address: fmt.Sprintf("user%d@x.test", i), Reason: suppression.ReasonUnsubscribe})
		}
		var file bytes.Buffer
		if err := l.Export(t.Context(), from, &file); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(file.String(), "\n") {
			for _, cell := range strings.Split(strings.ReplaceAll(line, `"`, ""), ",") {
				if cell != "" && strings.Contains("=+-@", cell[:1]) {
					t.Errorf("line %d has the cell %q", i+1, cell)
				}
			}
		}
		if head := "address,reason,created_at,source_message_id,diagnostic,simulated\r\n'=cmd@x.test,bounce,2026-03-01T12:00:00Z," + from.String() + ",\"'=1+1\r\n\"\"x\"\"\",false\r\n"; !strings.HasPrefix(file.String(), head) {
			t.Errorf("it begins %.300q", file.String())
		}
		done, err := l.Import(t.Context(), to, &file, suppression.ReasonManual)
		before := slices.DeleteFunc(whole(t, l, from), func(e string) bool { return strings.Contains(e, "@simulator.test") })
		if got := whole(t, l, to); err != nil || done.Added != 1206 || done.Rejected != 1 || !slices.Equal(got, before) {
			t.Errorf("%+v, %v\n%q\n%q", done, err, got[:9], before[:9])
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add("email,reason\na@x.test,bounce\n")
	f.Add("\xEF\xBB\xBFa@x.test;\"b\n\"\"\n;1704164645")
	f.Add("'=a@x.test\t\x00\xff")
	f.Fuzz(func(t *testing.T, text string) { suppression.CheckSheet(t, text) })
}

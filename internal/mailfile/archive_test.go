// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// kept is a message that was read to its end.
type kept struct {
	Message
	text string
}

// gathered is the contents of a stream.
type gathered struct {
	messages []kept
	folders  []Folder
	failed   []string
}

func (g *gathered) sink() Sink {
	return Sink{
		Message: func(m *Message) error {
			text, err := io.ReadAll(m.Body)
			g.messages = append(g.messages, kept{*m, string(text)})
			return err
		},
		Folder: func(f Folder) error {
			g.folders = append(g.folders, f)
			return nil
		},
		Failed: func(place, why string) error {
			g.failed = append(g.failed, place+": "+why)
			return nil
		},
	}
}

func (g *gathered) texts() (all []string) {
	for _, k := range g.messages {
		all = append(all, k.text)
	}
	return all
}

func gather(t testing.TB, stream string, o Options) *gathered {
	t.Helper()
	g := &gathered{}
	// Chunks of odd sizes, as they come from a network.
	if err := Read(&dribble{r: strings.NewReader(stream)}, o, g.sink()); err != nil {
		t.Fatalf("%v after %d messages", err, len(g.messages))
	}
	return g
}

// dribble returns a stream in chunks of changing size.
type dribble struct {
	r io.Reader
	n int
}

func (d *dribble) Read(p []byte) (int, error) {
	d.n = d.n*5%4099 + 1
	return d.r.Read(p[:min(len(p), d.n)])
}

func date(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return t
}

// text is a message to write.
type text struct{ *strings.Reader }

func (t text) Size() int64 { return t.Reader.Size() }

var anyMessage = rapid.Custom(func(t *rapid.T) kept {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"From ", ">", ">From x", "From a@b Sat Nov 21 17:00:00 2026", "\r\n", "\n", "\r", "\r\n\r\n", "\r\r\n", "Subject: x", "Status: RO", " ", "a", ".",
		"Content-Length: 3", "X-Folder: y", "MAILSTEAD", strings.Repeat(">", fragmentSize-3), strings.Repeat("z", 70_000), "\x00", "\xff",
	}), 0, 12).Draw(t, "pieces")
	k := kept{text: strings.Join(pieces, "")}
	k.Date = time.Unix(rapid.Int64Range(-1e9, 9e9).Draw(t, "date"), 0).UTC()
	k.Flags = Flags(rapid.IntRange(0, 31).Draw(t, "flags"))
	for n := range rapid.IntRange(0, 3).Draw(t, "keywords") {
		k.Keywords = append(k.Keywords, fmt.Sprintf(rapid.SampledFrom([]string{"$k%d", "$k,%d"}).Draw(t, "form"), n+rapid.IntRange(0, 40).Draw(t, "k")))
	}
	slices.Sort(k.Keywords)
	k.Keywords = slices.Compact(k.Keywords)
	k.Folder = rapid.SampledFrom([]string{"INBOX", "Sent", "a/b.c", "Entwürfe & mehr", " =?x", "%", "A/B", ".x"}).Draw(t, "folder")
	if k.Folder == "Sent" {
		k.SpecialUse = `\Sent`
	}
	return k
})

func same(t *rapid.T, want, got []kept) {
	if len(want) != len(got) {
		t.Fatalf("%d of %d messages", len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		slices.Sort(g.Keywords)
		if w.text != g.text || !clampDate(w.Date).Equal(g.Date) || w.Flags != g.Flags || !slices.Equal(w.Keywords, g.Keywords) || w.Folder != g.Folder || parseSpecialUse(w.SpecialUse) != g.SpecialUse {
			t.Fatalf("message %d is\n%.300q %+v, and was\n%.300q %+v", i, g.text, g.Message, w.text, w.Message)
		}
	}
}

// A date at either end of the range is valid in every time zone of the node.
func TestDatesWhereverItIs(t *testing.T) {
	for _, zone := range []*time.Location{time.FixedZone("west", -12*3600), time.UTC, time.FixedZone("east", 14*3600)} {
		for at, want := range map[int64]bool{0: false, 1: true, 7258118399: true, 7258118400: false} {
			if isPlausible(time.Unix(at, 0).In(zone)) != want {
				t.Errorf("%d in the %v: %v", at, zone, !want)
			}
		}
	}
}

// Messages are read back as they were written.
func TestMboxKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyMessage, 0, 6).Draw(t, "messages")
		var out bytes.Buffer
		w := NewMboxWriter(&out)
		w.WithFolders = true
		for i := range all {
			if err := w.Write(&all[i].Message, text{strings.NewReader(all[i].text)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		g := &gathered{}
		if err := Read(&dribble{r: &out}, Options{Kind: Mbox}, g.sink()); err != nil {
			t.Fatal(err)
		}
		same(t, all, g.messages)
	})
}

// The same for a tar of Maildirs.
func TestMaildirKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyMessage, 0, 6).Draw(t, "messages")
		slices.SortStableFunc(all, func(a, b kept) int { return strings.Compare(a.Folder, b.Folder) })
		folders := []Folder{{Name: "INBOX", Subscribed: true}, {Name: strings.Repeat("ü", 120), Subscribed: true}, {Name: strings.Repeat("Ü", 120)}, {Name: "a/B.C"}}
		for _, m := range all {
			if f := (Folder{Name: m.Folder, SpecialUse: m.SpecialUse, Subscribed: true}); !slices.Contains(folders, f) {
				folders = append(folders, f)
			}
		}
		var out bytes.Buffer
		w, err := NewMaildirWriter(&out, folders, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range all {
			if i == 0 || all[i-1].Folder != m.Folder {
				var words []string
				for _, k := range all {
					words = append(words, k.Keywords...)
				}
				for n := range 24 { // more than there are letters
					words = append(words, fmt.Sprintf("more%d", n))
				}
				slices.Sort(words)
				words = slices.Compact(words)
				slices.Reverse(words)
				if err := w.BeginFolder(m.Folder, 7, words, func(yield func(MessageKeywords) bool) {
					for i, m := range all {
						if !yield(MessageKeywords{uint32(i + 1), m.Keywords}) {
							return
						}
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Write(&m.Message, uint32(i+1), text{strings.NewReader(m.text)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		g := &gathered{}
		if err := Read(&dribble{r: &out}, Options{}, g.sink()); err != nil {
			t.Fatal(err)
		}
		same(t, all, g.messages)
		for _, f := range folders {
			if f.SpecialUse = parseSpecialUse(f.SpecialUse); !slices.Contains(g.folders, f) {
				t.Fatalf("the folder %+v is lost, there are %+v", f, g.folders)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

const monthNames = "JanFebMarAprMayJunJulAugSepOctNovDec"

var errDate = bad("A date is wrong.")

// date takes a date of SEARCH, such as 1-Feb-1994, quoted or not; it returns
// that day's midnight in UTC.
func (r *Reader) date() time.Time {
	quoted := r.accept('"')
	day := r.dayMonthYear()
	if quoted {
		r.expectInDate('"')
	}
	return day
}

// dateTime takes a date-time, such as " 7-Feb-1994 21:52:25 -0800" with its
// quotes; it returns it in its own zone.
func (r *Reader) dateTime() time.Time {
	r.expectInDate('"')
	r.accept(' ') // a day of one digit is padded
	year, month, day := r.dayMonthYear().Date()
	r.expectInDate(' ')
	hour := r.twoDigits(23)
	r.expectInDate(':')
	minute := r.twoDigits(59)
	r.expectInDate(':')
	second := r.twoDigits(60)
	r.expectInDate(' ')
	west := r.accept('-')
	if !west {
		r.expectInDate('+')
	}
	offset := r.twoDigits(23) * 3600
	offset += r.twoDigits(59) * 60
	r.expectInDate('"')
	if west {
		offset = -offset
	}
	zone := time.UTC
	if offset != 0 {
		zone = time.FixedZone("", offset)
	}
	return time.Date(year, month, day, hour, minute, second, 0, zone)
}

func (r *Reader) expectInDate(c byte) {
	if !r.accept(c) {
		fail(errDate)
	}
}

func (r *Reader) dayMonthYear() time.Time {
	start := r.pos
	for n := 0; n < 2 || r.pos < len(r.line) && isDigit(r.line[r.pos]); r.pos++ {
		if r.pos == len(r.line) {
			fail(errDate)
		}
		if r.line[r.pos] == '-' {
			n++
		}
	}
	day, err := time.Parse("2-Jan-2006", string(r.line[start:r.pos]))
	if err != nil {
		fail(errDate)
	}
	return day
}

func (r *Reader) twoDigits(limit int) int {
	if r.pos+2 > len(r.line) || !isDigit(r.line[r.pos]) || !isDigit(r.line[r.pos+1]) {
		fail(errDate)
	}
	n := int(r.line[r.pos]-'0')*10 + int(r.line[r.pos+1]-'0')
	if r.pos += 2; n > limit {
		fail(errDate)
	}
	return n
}

// appendDateTime appends t as a quoted date-time, in t's own zone.
func appendDateTime(b []byte, t time.Time) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	_, offset := t.Zone()
	b = append(b, '"')
	if day < 10 {
		b = append(b, ' ', byte('0'+day))
	} else {
		b = appendTwo(b, day)
	}
	b = append(b, '-')
	b = append(b, monthNames[(month-1)*3:month*3]...)
	b = append(b, '-')
	year = min(max(year, 0), 9999)
	b = appendTwo(b, year/100)
	b = appendTwo(b, year%100)
	b = append(b, ' ')
	b = appendTwo(b, hour)
	b = append(b, ':')
	b = appendTwo(b, minute)
	b = append(b, ':')
	b = appendTwo(b, second)
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	b = append(b, ' ', sign)
	b = appendTwo(b, offset/3600)
	b = appendTwo(b, offset/60%60)
	return append(b, '"')
}

func appendTwo(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

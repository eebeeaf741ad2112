// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

const monthNames = "JanFebMarAprMayJunJulAugSepOctNovDec"

var errDate = bad("A date is wrong.")

// date takes a date of SEARCH, such as 1-Feb-1994, quoted or not; it returns
// that day's midnight in UTC.
func (r *Reader) date() (time.Time, error) {
	quoted := r.accept('"')
	day, month, year, err := r.dayMonthYear()
	if err != nil {
		return time.Time{}, err
	}
	if quoted && !r.accept('"') {
		return time.Time{}, errDate
	}
	t := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day {
		return time.Time{}, errDate
	}
	return t, nil
}

// dateTime takes a date-time, such as " 7-Feb-1994 21:52:25 -0800" with its
// quotes; it returns it in its own zone.
func (r *Reader) dateTime() (time.Time, error) {
	if !r.accept('"') {
		return time.Time{}, errDate
	}
	r.accept(' ') // a day of one digit is padded
	day, month, year, err := r.dayMonthYear()
	if err != nil || !r.accept(' ') {
		return time.Time{}, errDate
	}
	hour, ok1 := r.twoDigits(23)
	colon1 := r.accept(':')
	minute, ok2 := r.twoDigits(59)
	colon2 := r.accept(':')
	second, ok3 := r.twoDigits(60)
	if !ok1 || !ok2 || !ok3 || !colon1 || !colon2 || !r.accept(' ') {
		return time.Time{}, errDate
	}
	west := r.accept('-')
	if !west && !r.accept('+') {
		return time.Time{}, errDate
	}
	zoneHour, ok1 := r.twoDigits(23)
	zoneMinute, ok2 := r.twoDigits(59)
	if !ok1 || !ok2 || !r.accept('"') {
		return time.Time{}, errDate
	}
	offset := zoneHour*3600 + zoneMinute*60
	if west {
		offset = -offset
	}
	zone := time.UTC
	if offset != 0 {
		zone = time.FixedZone("", offset)
	}
	if time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Day() != day {
		return time.Time{}, errDate
	}
	return time.Date(year, month, day, hour, minute, second, 0, zone), nil
}

func (r *Reader) dayMonthYear() (day int, month time.Month, year int, err error) {
	d, err := r.number(31)
	if err != nil || d == 0 || !r.accept('-') {
		return 0, 0, 0, errDate
	}
	if r.pos+3 > len(r.line) {
		return 0, 0, 0, errDate
	}
	name := r.line[r.pos : r.pos+3]
	r.pos += 3
	for i := 0; i < len(monthNames); i += 3 {
		if equalFoldASCII(string(name), monthNames[i:i+3]) {
			month = time.Month(i/3 + 1)
		}
	}
	start := r.pos + 1
	if month == 0 || !r.accept('-') {
		return 0, 0, 0, errDate
	}
	y, err := r.number(9999)
	if err != nil || r.pos-start != 4 {
		return 0, 0, 0, errDate
	}
	return int(d), month, int(y), nil
}

func (r *Reader) twoDigits(limit int) (int, bool) {
	if r.pos+2 > len(r.line) || !isDigit(r.line[r.pos]) || !isDigit(r.line[r.pos+1]) {
		return 0, false
	}
	n := int(r.line[r.pos]-'0')*10 + int(r.line[r.pos+1]-'0')
	r.pos += 2
	return n, n <= limit
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

package builtin

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif"  // the header is read
	_ "image/jpeg" // the header is read
	_ "image/png"  // the header is read
)

// maxPixels is how many pixels an image may have: what a model's vendor unpacks is not ours to risk.
const maxPixels = 50_000_000

// imageType is the media type of an image that models take, by its own header: what the server says is not believed. No
// pixel is unpacked. ok is false for other formats and for too many pixels.
func imageType(data []byte) (kind string, ok bool) {
	width, height := 0, 0
	if c, format, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		kind, width, height = "image/"+format, c.Width, c.Height
	} else if w, h, webp := webpSize(data); webp {
		kind, width, height = "image/webp", w, h
	}
	return kind, width > 0 && height > 0 && width <= maxPixels/height
}

// webpSize reads the size out of a WebP file's first chunk (RFC 9649).
func webpSize(b []byte) (width, height int, ok bool) {
	const head = 30 // of the container and the longest of the three kinds of chunk
	if len(b) < head || string(b[:4]) != "RIFF" || string(b[8:12]) != "WEBP" {
		return 0, 0, false
	}
	switch string(b[12:16]) {
	case "VP8 ":
		const mask = 1<<14 - 1
		ok = b[23] == 0x9d && b[24] == 0x01 && b[25] == 0x2a
		return int(binary.LittleEndian.Uint16(b[26:])) & mask, int(binary.LittleEndian.Uint16(b[28:])) & mask, ok
	case "VP8L":
		const mask = 1<<14 - 1
		bits := binary.LittleEndian.Uint32(b[21:])
		return int(bits&mask) + 1, int(bits>>14&mask) + 1, b[20] == 0x2f
	case "VP8X":
		three := func(at int) int { return int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16 }
		return three(24) + 1, three(27) + 1, true
	}
	return 0, 0, false
}

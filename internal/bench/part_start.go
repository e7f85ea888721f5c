//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// idleFor is how long a server is left alone before its memory is looked at.
const idleFor = 5 * time.Second

// starts is part 7.
func (b *bench) starts(ctx context.Context) error {
	m, err := b.modelOf(ctx, textModel)
	if err != nil {
		return err
	}
	fresh, again, err := b.startTimes(ctx, m)
	if err != nil {
		return err
	}
	b.report.measured(7, "start to ready, existing folder", "ms", inMS(again.p50()), atMost(300, 100))
	b.report.measured(7, "start to ready, first start", "ms", inMS(fresh.p50()), atMost(300, 100))
	b.report.quantiles(7, "existing folder", &again)
	b.report.quantiles(7, "first start", &fresh)
	v, err := b.serve(ctx, b.plainSetting("start-0", m))
	if err != nil {
		return err
	}
	defer b.end(v.process)
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return ctx.Err()
	}
	rss, err := rssOf(v.pid())
	if err != nil {
		return err
	}
	b.report.measured(7, "idle RSS after 5 s", "MB", float64(rss)/1e6, atMost(60, 40))
	info, err := os.Stat(b.hobBin)
	if err != nil {
		return fmt.Errorf("look at the binary: %w", err)
	}
	b.report.measured(7, "binary, static and stripped", "MB", float64(info.Size())/1e6, atMost(60, 50))
	return nil
}

func (b *bench) plainSetting(folder string, m *model) setting {
	return setting{data: b.newData(folder), model: baseURL(m.addr), tool: b.tools.addr}
}

// startTimes starts the server on folders of its own, first and again.
func (b *bench) startTimes(ctx context.Context, m *model) (fresh, again sample, err error) {
	for i := range b.plan.starts {
		for _, times := range []*sample{&fresh, &again} {
			v, err := b.serve(ctx, b.plainSetting(fmt.Sprintf("start-%d", i), m))
			if err != nil {
				return fresh, again, err
			}
			times.add(v.ready)
			if err := v.stop(); err != nil {
				return fresh, again, err
			}
		}
	}
	return fresh, again, nil
}

// sizeOf is the size of all files in a folder, in bytes.
func sizeOf(folder string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(folder, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum += info.Size()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure the size of %s: %w", folder, err)
	}
	return sum, nil
}

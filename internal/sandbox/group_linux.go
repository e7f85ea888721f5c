//go:build linux && (amd64 || arm64)

package sandbox

// groups makes control groups for helpers where the machine lets it.
type groups struct{}

func newGroups() *groups { return &groups{} }

type group struct{}

func (g *groups) enter(int, Limits) *group { return nil }
func (g *groups) close()                   {}
func (g *group) remove()                   {}
func (g *group) wall() Wall                { return Wall{Name: "control group", Extra: true} }
func (g *group) met() *LimitError          { return nil }

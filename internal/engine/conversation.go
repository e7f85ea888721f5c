package engine

import (
	"slices"
	"strings"
	"unicode/utf8"

	"hob"
)

// Texts that stand for what was left out of a conversation.
const (
	removedResult  = "[Previous tool result removed to save context]"
	clippedMark    = "\n[... truncated ...]\n"
	summaryOpening = "This conversation is longer than you can read at once. What was said before is summarised here:\n\n"
	summaryClosing = "\n\nThe conversation goes on below. Rely on the summary as if you had read it all, and do not mention it."
)

// conversation is what the model reads: the session's messages, with the beginning summarised and old tool results left
// out where they would not fit.
type conversation struct {
	sent   []hob.Message
	stored map[int]hob.Message // of those that are not sent as they are stored: how they are
	tokens []int               // of each message that is sent, estimated
	from   []origin
	total  int
	exact  func(string) int // the model's own way to count; nil where it is not known
	memo   *hob.Memo        // of the first messages, as long as none of them changes; nil = begin anew
	sure   []bool           // which of tokens are exact; it may be shorter
}

// origin is where a message stands in the session: in which turn, as which of its messages. The summary has turn 0.
type origin struct {
	turn  int64
	index int
}

func summaryMessage(text string) hob.Message {
	return hob.Message{Role: hob.RoleUser, Content: summaryOpening + text + summaryClosing}
}

// converse gathers a session's earlier turns and the run's own messages. own is the number of the run's turn, 0 where
// the run is not stored yet.
func converse(past hob.History, own int64, messages []hob.Message) *conversation {
	n := len(messages) + 17
	for _, r := range past.Runs {
		n += len(r.Messages)
	}
	c := &conversation{}
	c.grow(n)
	if s := past.Summary; s != nil {
		c.add(summaryMessage(s.Text), origin{})
	}
	for _, r := range past.Runs {
		if len(r.Tokens) != len(r.Messages) {
			r.Tokens = tokensOfAll(r.Messages)
		}
		c.sent, c.tokens = append(c.sent, r.Messages...), append(c.tokens, r.Tokens...)
		for i, n := range r.Tokens {
			c.from = append(c.from, origin{r.Turn, i})
			c.total += n
		}
	}
	skip := 0
	if s := past.Summary; s != nil && own > 0 && s.Turn == own {
		skip = s.Index
	}
	c.extend(messages[:1], 0)
	c.extend(messages, max(skip, 1))
	return c
}

func (c *conversation) grow(n int) {
	c.sent, c.tokens, c.from = slices.Grow(c.sent, n), slices.Grow(c.tokens, n), slices.Grow(c.from, n)
}

// ownTurn marks the messages of the run itself; its turn may not be known yet.
const ownTurn = -1

// extend adds the run's own messages from an index on.
func (c *conversation) extend(own []hob.Message, from int) {
	for i := from; i < len(own); i++ {
		c.add(own[i], origin{ownTurn, i})
	}
}

// known is how many of the run's own messages were taken in.
func (c *conversation) known() int {
	if last := c.from[len(c.from)-1]; last.turn == ownTurn {
		return last.index + 1
	}
	return 0
}

func (c *conversation) add(m hob.Message, at origin) {
	n := tokensOf(&m)
	c.sent, c.tokens, c.from = append(c.sent, m), append(c.tokens, n), append(c.from, at)
	c.total += n
}

// take adds a message of another conversation, as it is sent there.
func (c *conversation) take(old *conversation, i int) {
	c.add(old.sent[i], old.from[i])
	if m, ok := old.stored[i]; ok {
		c.keep(len(c.sent)-1, m)
	}
}

func (c *conversation) keep(i int, m hob.Message) {
	if c.stored == nil {
		c.stored = map[int]hob.Message{}
	}
	c.stored[i] = m
}

// whole is a message as it is stored.
func (c *conversation) whole(i int) hob.Message {
	if m, ok := c.stored[i]; ok {
		return m
	}
	return c.sent[i]
}

// replace sends another message in the place of one; what is stored stays.
func (c *conversation) replace(i int, m hob.Message) {
	if _, ok := c.stored[i]; !ok {
		c.keep(i, c.sent[i])
	}
	c.memo = nil
	c.sent[i] = m
	c.total -= c.tokens[i]
	c.tokens[i] = tokensOf(&m)
	c.total += c.tokens[i]
	if i < len(c.sure) {
		c.sure[i] = false
	}
}

// weigh counts the messages as the model does, where that is known.
func (c *conversation) weigh() {
	if c.exact == nil {
		return
	}
	c.sure = append(c.sure, make([]bool, len(c.sent)-len(c.sure))...)
	for i := range c.sent {
		if !c.sure[i] {
			c.total -= c.tokens[i]
			c.tokens[i], c.sure[i] = messageTokens+tokensBy(c.exact, &c.sent[i]), true
			c.total += c.tokens[i]
		}
	}
}

// prune leaves out the results of tools before the user's last keep turns, never those of the turn under way. It tells
// whether it left out any.
func (c *conversation) prune(keep int) bool {
	users, until := 0, 0
	if keep <= 0 {
		until = len(c.sent)
	}
	for i := len(c.sent) - 1; i >= 0; i-- {
		if c.sent[i].Role == hob.RoleUser && c.from[i].turn != 0 {
			if users++; users == keep {
				until = i
				break
			}
		}
	}
	pruned := false
	for i := range until {
		m := c.sent[i]
		if m.Role == hob.RoleTool && c.from[i].turn != ownTurn && len(m.Content) > len(removedResult) {
			m.Content = removedResult
			c.replace(i, m)
			pruned = true
		}
	}
	return pruned
}

// cut finds where the part begins that is kept as it stands when the rest is summarised: the newest messages that fit
// into a number of tokens, of at most keep turns of the user, beginning with a turn or, inside the run's own, with a
// model's answer; at least the last answer with its results. The user's newest message is kept in any case, and its
// tokens count. 0 means that there is nothing to summarise.
func (c *conversation) cut(budget, keep int) int {
	first := c.newest()
	budget -= c.tokens[first]
	at, turns := 0, 0
	for i := len(c.sent) - 1; i > 0; i-- {
		if i != first {
			budget -= c.tokens[i]
		}
		if budget < 0 && at > 0 {
			break
		}
		m, own := &c.sent[i], c.from[i].turn == ownTurn
		if m.Role == hob.RoleUser && c.from[i].turn != 0 {
			if turns++; turns > keep {
				break
			}
		}
		if starts := m.Role == hob.RoleUser || own && m.Role == hob.RoleAssistant; starts && (own || c.from[i].index == 0) {
			at = i
			if budget < 0 {
				break
			}
		}
	}
	return at
}

// worth says whether there is something before at that a summary could stand for, beside an earlier summary and the
// user's newest message.
func (c *conversation) worth(at int) bool {
	newest := c.newest()
	for i := range at {
		if i != newest && c.from[i].turn != 0 {
			return true
		}
	}
	return false
}

// head is how many of the first messages fit into a number of tokens; calls stay with their results.
func (c *conversation) head(budget int) int {
	n := 0
	for i := range c.sent {
		if i > 0 && c.sent[i].Role != hob.RoleTool {
			n = i
		}
		if budget -= c.tokens[i]; budget < 0 {
			return n
		}
	}
	return len(c.sent)
}

// newest is the index of the run's own message of the user, or of what stands for the beginning where it was condensed.
func (c *conversation) newest() int {
	for i := range c.from {
		if c.from[i].turn == ownTurn && c.from[i].index == 0 {
			return i
		}
	}
	return 0
}

// condense puts a summary in the place of everything before at, but for the user's newest message.
func (c *conversation) condense(text string, at int) {
	old := *c
	newest := old.newest()
	*c = conversation{exact: old.exact}
	c.grow(len(old.sent) - at + 17)
	c.add(summaryMessage(text), origin{})
	if newest < at {
		c.take(&old, newest)
	}
	for i := at; i < len(old.sent); i++ {
		c.take(&old, i)
	}
}

// truncate makes the conversation fit into a number of tokens without a model: it keeps the newest messages, whole turns
// of the model with all their results, and the user's newest message as it is, and shortens the texts of the others where
// they alone are too long. It tells whether that was enough.
func (c *conversation) truncate(budget int) bool {
	newest := c.newest()
	at := c.cut(budget, len(c.sent))
	if at > 0 {
		old := *c
		*c = conversation{exact: old.exact}
		c.grow(len(old.sent) - at + 17)
		if newest < at {
			c.take(&old, newest)
		}
		for i := at; i < len(old.sent); i++ {
			c.take(&old, i)
		}
	}
	if c.total > budget {
		c.clip(budget)
	}
	return c.total <= budget
}

// clip shortens the longest texts to one length, so that all fit into a number of tokens. The user's newest message and
// the arguments of calls stay as they are.
func (c *conversation) clip(budget int) {
	newest := c.newest()
	var lengths []int
	rest := budget - c.total
	for i := range c.sent {
		if i != newest && len(c.sent[i].Parts) == 0 {
			n := estimateTokens(c.sent[i].Content)
			lengths = append(lengths, n)
			rest += n
		}
	}
	const margin = 95 // percent: estimates of pieces do not add up exactly
	level := waterLevel(lengths, max(rest, 0)*margin/100)
	for i := range c.sent {
		if m := c.sent[i]; i != newest && len(m.Parts) == 0 && estimateTokens(m.Content) > level {
			m.Content = shorten(m.Content, level)
			c.replace(i, m)
		}
	}
}

// waterLevel is the bound to which lengths are cut so that they fit into a sum.
func waterLevel(lengths []int, sum int) int {
	sorted := slices.Sorted(slices.Values(lengths))
	for i, n := range sorted {
		if left := len(sorted) - i; n*left > sum {
			return sum / left
		}
		sum -= n
	}
	return 1 << 30
}

// shorten keeps the beginning and the end of a text, of about a number of tokens in all.
func shorten(s string, tokens int) string {
	marks := estimateTokens(clippedMark)
	if tokens <= marks {
		return strings.TrimSpace(clippedMark)
	}
	total := max(estimateTokens(s), 1)
	keep := min(len(s)*(tokens-marks)/total, len(s))
	head, tail := keep*2/3, len(s)-keep/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return s[:head] + clippedMark + s[tail:]
}

// lastPart is a text of at most about a number of tokens: the end of a longer one.
func lastPart(s string, tokens int) string {
	total := estimateTokens(s)
	if total <= tokens {
		return s
	}
	from := len(s) - len(s)*tokens/total
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return strings.TrimPrefix(clippedMark, "\n") + s[from:]
}

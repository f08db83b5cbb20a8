import { describe, expect, test } from 'vitest'
import { decisionMistakes, withDecisionIndex } from '../../scripts/docs/decisions.ts'
import { decisions } from '../../scripts/docs.ts'

describe('docs/decisions', () => {
  test('each has the form of a decision', () => {
    const files = decisions()
    expect(files.size).toBeGreaterThan(50)
    expect(decisionMistakes(files)).toEqual([])
  })

  test('a file in another form is refused with the reason', () => {
    const good = '# 7. Title\n\nDate: 2026-11-22. Status: accepted.\n\n## Context\n\n## Decision\n\n## Consequences\n'
    const mistakes = (file: string, text: string) => decisionMistakes(new Map([[file, text]]))
    expect(mistakes('0007-title.md', good)).toEqual([])
    expect(mistakes('title.md', good)).toEqual(['docs/decisions/title.md is not named NNNN-a-few-words.md'])
    expect(mistakes('0008-title.md', good)).toEqual(['docs/decisions/0008-title.md does not begin with "# 8. "'])
    expect(mistakes('0007-title.md', good.replace('accepted', 'good'))).toEqual([
      expect.stringMatching(/has no line "Date:/),
    ])
    expect(mistakes('0007-title.md', good.replace('## Context\n', ''))).toEqual([
      expect.stringMatching(/must have the sections/),
    ])
    const twice = new Map([
      ['0007-one.md', good],
      ['0007-two.md', good],
    ])
    expect(decisionMistakes(twice)).toEqual([
      'docs/decisions/0007-two.md has the number of 0007-one.md: take the next free one',
    ])
  })

  test('the index has number, title, date and status of each', () => {
    const text = '# 7. A | B\n\nDate: 2026-11-22. Status: accepted.\n'
    const index = withDecisionIndex(
      '## Index\n\n| | decision | date | status |\n|---|\n',
      new Map([['0007-a.md', text]]),
    )
    expect(index).toContain('| 7 | [A \\| B](0007-a.md) | 2026-11-22 | accepted |\n')
  })
})

/** The index of docs/decisions/, which has one decision per file. */
import { row, withTable } from './tables.ts'

/** The sections of a decision, in order. */
const SECTIONS = ['Context', 'Decision', 'Consequences']

/** `document` with the table under `## Index` replaced. `files` maps names to texts. */
export function withDecisionIndex(document: string, files: ReadonlyMap<string, string>): string {
  const rows = [...files]
    .sort(([a], [b]) => a.localeCompare(b, 'en'))
    .map(([file, text]) => {
      const [, number, title] = /^# (\d+)\. (.*)$/m.exec(text) ?? []
      const [, date, status] = /^Date: ([\d-]+)\. Status: (.*)\.$/m.exec(text) ?? []
      return row([number ?? '?', `[${title}](${file})`, date ?? '?', status ?? '?'])
    })
  return withTable(document, '## Index\n', `| | decision | date | status |\n|---:|---|---|---|\n${rows.join('')}`)
}

/** What is wrong with the form of the decisions, one sentence each. */
export function decisionMistakes(files: ReadonlyMap<string, string>): string[] {
  const taken = new Map<string, string>()
  return [...files].flatMap(([file, text]) => {
    const mistakes: string[] = []
    const number = /^(\d{4})-[a-z0-9-]+\.md$/.exec(file)?.[1]
    if (number === undefined) mistakes.push('is not named NNNN-a-few-words.md')
    else if (!text.startsWith(`# ${Number(number)}. `)) mistakes.push(`does not begin with "# ${Number(number)}. "`)
    const other = taken.get(number ?? file)
    if (other !== undefined) mistakes.push(`has the number of ${other}: take the next free one`)
    taken.set(number ?? file, file)
    if (!/^Date: \d{4}-\d\d-\d\d\. Status: (accepted|replaced by \[\d+\]\(.*\))\.$/m.test(text)) {
      mistakes.push('has no line "Date: YYYY-MM-DD. Status: accepted."')
    }
    const sections = [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
    if (sections.join() !== SECTIONS.join()) mistakes.push(`must have the sections ${SECTIONS.join(', ')}`)
    return mistakes.map(mistake => `docs/decisions/${file} ${mistake}`)
  })
}

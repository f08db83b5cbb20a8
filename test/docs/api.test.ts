import { describe, expect, test } from 'vitest'
import { apiReference } from '../../scripts/docs/api.ts'
import type { Declaration, EntryPoint } from '../../scripts/docs/declarations.ts'
import { compileExamples, examplesIn } from '../../scripts/docs/examples.ts'
import { checkout, generatedPages } from '../../scripts/docs.ts'

const EXAMPLE = '```ts\nopen()\n```'

function entry(declaration: Partial<Declaration>): EntryPoint {
  const code = 'export declare function open(): void;'
  const open = { name: 'open', file: 'server/index.ts', doc: `Opens.\n\n@example\n${EXAMPLE}`, code, ...declaration }
  return { name: 'sallyport/server', about: `The server.\n\n${EXAMPLE}`, exports: [open] }
}

describe('the API reference', () => {
  test('is up to date, and every export has a docstring', { tags: ['slow'] }, () => {
    const { pages, missing } = generatedPages()
    expect(missing).toEqual([])
    const tree = checkout()
    expect(
      [...pages].filter(([path, text]) => tree.get(path) !== text).map(([path]) => `npm run docs: ${path}`),
    ).toEqual([])
  })

  test('publishes no classes but errors and those meant to be extended', () => {
    const published = [...checkout()].filter(([path]) => path.startsWith('docs/api/')).map(([, text]) => text)
    const classes = published.flatMap(text => [...text.matchAll(/^```ts\nclass (.*) \{$/gm)].map(match => match[1]!))
    const bases = classes.filter(each => !/Error extends (?:Error|SallyportError)$/.test(each))
    expect(bases).toEqual(['PassThrough implements RequestSink, ResponseSink'])
  })

  test('has everything that each entry point exports', () => {
    const page = apiReference([entry({})]).pages.get('docs/api/server.md')
    expect(page).toContain('## open\n\nOpens.\n\n```ts\nopen()\n```\n\nDeclared in `server/index.ts`.')
    expect(page).toContain('```ts\nfunction open(): void;\n```')
  })

  test('says which docstrings and examples are missing', () => {
    const missing = (declaration: Partial<Declaration>) => apiReference([entry(declaration)]).missing
    expect(missing({})).toEqual([])
    expect(missing({ doc: '' })).toEqual(['server/index.ts: open has no docstring'])
    expect(missing({ doc: 'Opens.' })).toEqual(['server/index.ts: open has no example'])
    expect(missing({ doc: 'What is open.', code: 'export interface open {\n}' })).toEqual([])
    expect(apiReference([{ ...entry({}), about: '' }]).missing).toEqual([
      expect.stringMatching(/no docstring at the head/),
    ])
  })
})

describe('examples in documents and docstrings', () => {
  test('compile', { tags: ['slow'] }, () => {
    const examples = examplesIn(checkout())
    expect(examples.size).toBeGreaterThan(30)
    expect(compileExamples(examples)).toEqual([])
  })

  test('one that does not is named', () => {
    const tree = new Map([['docs/a.md', "```ts\nimport { open } from 'sallyport/client'\n```\n"]])
    expect(compileExamples(examplesIn(tree))).toEqual([expect.stringMatching(/^docs\/a\.md#1\(1,10\): .* 'open'/)])
  })
})

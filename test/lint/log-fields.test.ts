import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'

const OTHER_WORD = /logger(?:\.\w+|\[\w+\])\(\s*(?=\{)[^}]*?[{,]\s*(error|detail|problem)\s*[:,}]/g
const inText = (text: string) => [...text.matchAll(OTHER_WORD)].map(([, word]) => word)

test('an error in a log line is `err`, as in pino', () => {
  const sources = [...checkout()].filter(([file]) => /^(?:server|client|router|protocol|cli|admin)\/.*\.ts$/.test(file))
  expect(sources.length).toBeGreaterThan(250)
  const astray = sources.flatMap(([file, text]) => inText(text).map(word => `${file}: ${word}`))
  expect(astray).toEqual([])
})

test('any other name is found', () => {
  expect(inText("logger.warn({ file, problem: 'x' }, 'y')\nthis.#logger[level]({ error }, 'z')")).toEqual([
    'problem',
    'error',
  ])
  expect(inText("logger.error({ err: error }, 'x')")).toEqual([])
})

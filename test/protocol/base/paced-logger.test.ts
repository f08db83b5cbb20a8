import { expect, test } from 'vitest'
import { LINES_PER_PERIOD, PacedLogger, PERIOD_MS } from '../../../protocol/base/paced-logger.ts'

function startLogger() {
  let nowMs = 0
  const lines: Array<readonly [level: string, fields: object, message: string]> = []
  const at = (level: string) => (fields: object, message: string) => void lines.push([level, fields, message])
  const logger = new PacedLogger(
    { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') },
    () => nowMs,
  )
  const wait = (ms: number) => {
    nowMs += ms
  }
  return { logger, lines, wait }
}

test('messages beyond the allowed rate are counted, and the count is logged', () => {
  const { logger, lines, wait } = startLogger()
  for (let i = 0; i < LINES_PER_PERIOD + 7; i++) logger.warn({ i }, 'refused')
  expect(lines.map(([, fields]) => fields)).toEqual(Array.from({ length: LINES_PER_PERIOD }, (_, i) => ({ i })))
  logger.error({}, 'another line')
  expect(lines.at(-1)).toEqual(['error', {}, 'another line'])
  wait(PERIOD_MS)
  logger.error({}, 'another line')
  expect(lines.slice(-2)).toEqual([
    ['warn', { unsaid: 7 }, 'refused'],
    ['error', {}, 'another line'],
  ])
  logger.warn({ i: 0 }, 'refused')
  expect(lines.at(-1)).toEqual(['warn', { i: 0 }, 'refused'])
})

test('one runtime suppresses no line of another; with debug everything is logged', () => {
  const { logger, lines } = startLogger()
  for (let i = 0; i < 2 * LINES_PER_PERIOD; i++) {
    logger.info({ runtime: 'loud' }, 'session ended')
    logger.debug({}, 'more')
  }
  logger.info({ runtime: 'calm' }, 'session ended')
  expect(lines.filter(([level]) => level === 'info')).toHaveLength(LINES_PER_PERIOD + 1)
  expect(lines.filter(([level]) => level === 'debug')).toHaveLength(2 * LINES_PER_PERIOD)
})

test('whoever can choose the message is bounded, too', () => {
  const { logger, lines } = startLogger()
  for (let i = 0; i < 1000 * LINES_PER_PERIOD; i++) logger.warn({}, `it failed at ${i}`)
  expect(lines.length).toBeLessThan(4 * LINES_PER_PERIOD)
})

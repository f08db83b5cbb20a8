import { findEndpoints, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { describeStatus } from '../status-text.ts'

/** `sallyport status`: asks all at once, shows those that answer, and fails for one that does not. */
export const status: Run = async (args, io) => {
  const endpoints = findEndpoints(args, io)
  const asked = await Promise.allSettled(endpoints.map(endpoint => view(endpoint, '/status')))
  const answers = asked.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []))
  const failures = asked.flatMap(one => (one.status === 'rejected' ? [one.reason as Error] : []))
  if (answers.length > 0) {
    const shown = endpoints.length === 1 ? answers[0] : answers
    if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(shown, undefined, 2)}\n`)
    else io.out(answers.map(answer => describeStatus(answer)).join('\n'))
  }
  const last = failures.pop()
  for (const { message } of failures) io.note(`sallyport: ${message}`)
  if (last !== undefined) throw last
  return EXIT.ok
}

import { findEndpoints, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'
import { describeStatus } from '../status-text.ts'

/** `sallyport status` */
export const status: Run = async (args, io) => {
  const answers: unknown[] = []
  for (const endpoint of findEndpoints(args, io)) answers.push(await view(endpoint, '/status'))
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(answers.length === 1 ? answers[0] : answers, undefined, 2)}\n`)
  else io.out(answers.map(answer => describeStatus(answer)).join('\n'))
  return EXIT.ok
}

import { short } from '../support/needs.ts'
import { testRows } from './row.ts'

testRows('server-update')
if (!short) testRows('server-restart', 'server-restart-kept', 'kill')

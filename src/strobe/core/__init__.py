"""What any callable needs: sections, measuring, verdicts, sameness, the frames of treatments, results, reports and commands. No LeRobot."""
